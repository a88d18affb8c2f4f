-- ARGV 3..5: the occupancy and provider to continue after, or '' and ''; the limit. Returns the stamp, the names of
-- available providers, for each its occupancy and capacity as two integers of four bytes, and 1 if there may be more,
-- with the occupancy and provider to continue after.
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

-- Selects the available providers of a page by their rows and their tenures. Occupancies and capacities are packed: a
-- reply with few elements is cheap to write and to read.
local found, places, n = {}, {}, 0
local function pick(names)
  local packed = redis.call('HMGET', PROVIDERS, unpack(names))
  local tenures, at, k = {}, {}, 0
  for i = 1, #names do
    local row = packed[i]
    local tenure = row and #row > HEAD and string.byte(row) == 49 and tenure_in(names[i], row)
    if tenure then
      k = k + 1
      tenures[k], at[k] = tenure, i
    end
  end
  local alive = k > 0 and redis.call('HMGET', PREFIX .. 'alive', unpack(tenures)) or {}
  local before, is_alive
  for j = 1, k do
    local life = alive[j]
    -- Adjacent values are mostly equal: Lua compares strings by address.
    if life and life ~= before then
      before, is_alive = life, lives(life)
    end
    if life and is_alive then
      local capacity, occupancy = struct.unpack('<I4I4', packed[at[j]], 33)
      if occupancy < capacity then
        n = n + 1
        found[n], places[2 * n - 1], places[2 * n] = names[at[j]], occupancy, capacity
      end
    end
  end
end

-- Members that lapsed since the last sweep are skipped, up to a bound: a page may be short.
local rank = ARGV[3] == '' and 0 or rank_after(ARGV[3], ARGV[4])
local looked, last, more = 0, nil, true
while more and n < limit and looked < math.max(limit, MAX_OVERDUE) do
  local count = math.min(limit - n, 200)
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
local packed = struct.pack('<' .. string.rep('I4', 2 * n), unpack(places))
return { NONCE, now, 'ok', stamp(), found, packed, more and 1 or 0, score, more and last or '' }
