-- ARGV 3..5: the occupancy and provider to continue after, or '' and ''; the limit. Returns the stamp, for each
-- available provider its name, occupancy and capacity, and 1 if there may be more, with the occupancy and provider to
-- continue after.
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

-- The rank of the first entry after a position, whether or not the entry at the position still exists.
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

-- Selects the available providers of a page by their rows and their tenures.
local found, n = {}, 0
local function pick(names)
  local packed = redis.call('HMGET', PROVIDERS, unpack(names))
  local _, alive = lives_of(names, packed)
  local before, is_alive
  for i = 1, #names do
    local life = alive[i]
    -- Adjacent values are mostly equal: Lua compares strings by address.
    if life and life ~= before then
      before, is_alive = life, lives(life)
    end
    if life and is_alive and string.byte(packed[i]) == 49 then
      local capacity, occupancy = struct.unpack('<I4I4', packed[i], 33)
      if occupancy < capacity then
        found[n + 1], found[n + 2], found[n + 3] = names[i], occupancy, capacity
        n = n + 3
      end
    end
  end
end

-- Members that lapsed since the last sweep are skipped, up to a bound: a page may be short.
local rank = ARGV[3] == '' and 0 or rank_after(ARGV[3], ARGV[4])
local looked, last, more = 0, nil, true
while more and n < 3 * limit and looked < math.max(limit, MAX_OVERDUE) do
  local count = math.min(limit - n / 3, 200)
  local names = redis.call('ZRANGE', free, rank + looked, rank + looked + count)
  more = #names > count
  if more then
    names[#names] = nil
  end
  if #names > 0 then
    pick(names)
    last = names[#names]
  end
  looked = looked + #names
end
local score = more and redis.call('ZSCORE', free, last) or ''
return { NONCE, now, 'ok', stamp(), found, more and 1 or 0, score, more and last or '' }
