-- ARGV 3: 'all', then the name to continue after, or ''; or 'away', then the due time and name to continue after, or 0
-- and ''. Then the limit.
-- Returns the names, sorted by name or by the end of their grace, and whether there are more; for 'away' also when the
-- last is due.
local count = tonumber(ARGV[6])
local index = PREFIX .. 'disconnected'

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
local function rank_after(due, name)
  local low = redis.call('ZCOUNT', index, '-inf', '(' .. due)
  local high = low + redis.call('ZCOUNT', index, due, due)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local there = redis.call('ZRANGE', index, middle, middle)[1]
    if byte_less(name, there) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

if ARGV[3] == 'all' then
  local from = ARGV[5] == '' and '-' or '(' .. ARGV[5]
  local names = redis.call('ZRANGE', PREFIX .. 'sessions', from, '+', 'BYLEX', 'LIMIT', 0, count + 1)
  local more = #names > count
  if more then
    names[#names] = nil
  end
  return { NONCE, now, 'ok', names, more and 1 or 0, 0 }
end
local rank = ARGV[5] == '' and 0 or rank_after(ARGV[4], ARGV[5])
local found, names = redis.call('ZRANGE', index, rank, rank + count, 'WITHSCORES'), {}
for i = 1, math.min(#found, 2 * count), 2 do
  names[#names + 1] = found[i]
end
local more = #found > 2 * count
return { NONCE, now, 'ok', names, more and 1 or 0, #names > 0 and found[2 * #names] or 0 }
