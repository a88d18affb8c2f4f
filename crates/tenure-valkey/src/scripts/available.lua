-- ARGV 3..5: after which occupancy and provider, or '' and ''; how many. Answers the stamp, for each who can take work the
-- name, occupancy and capacity, and whether there may be more: 1, and after which occupancy and provider.
local free, limit = PREFIX .. 'free', tonumber(ARGV[5])

local function byte_less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

-- The rank of the first entry after a place, whether or not the entry at the place is still there.
local function rank_after(occupancy, provider)
  local low = redis.call('ZCOUNT', free, '-inf', '(' .. occupancy)
  local high = low + redis.call('ZCOUNT', free, occupancy, occupancy)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if byte_less(provider, redis.call('ZRANGE', free, middle, middle)[1]) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- Whoever lapsed since the last sweep is passed over, up to a bound: a page may be short.
local rank = ARGV[3] == '' and 0 or rank_after(ARGV[3], ARGV[4])
local found, looked, last, more = {}, 0, nil, true
while more and #found < 3 * limit and looked < math.max(limit, MAX_OVERDUE) do
  local count = math.min(limit - #found / 3, 200)
  local part = redis.call('ZRANGE', free, rank + looked, rank + looked + count, 'WITHSCORES')
  more = #part > 2 * count
  local names = {}
  for i = 1, math.min(#part / 2, count) do
    names[i], last = part[2 * i - 1], { part[2 * i], part[2 * i - 1] }
  end
  if #names > 0 then
    for i, row in ipairs(rows_of(names)) do
      if row and row.life and row.active == 1 and row.occupancy < row.capacity and lives(row.life) then
        local n = #found
        found[n + 1], found[n + 2], found[n + 3] = names[i], row.occupancy, row.capacity
      end
    end
  end
  looked = looked + #names
end
return { NONCE, now, 'ok', stamp(), found, more and 1 or 0, more and last[1] or '', more and last[2] or '' }
