-- KEYS 1, 2: the index of due groups, the pulse. ARGV 1, 2: nonce, not-after; 3, 4: how far ahead, the limit. Returns a number that
-- changes when the index was lost; when the store last resumed, 0 without a pulse; and the groups with their due times. An entry
-- without a name marks the index. On a cluster the slot of a group may have moved: its entry is returned, once more after
-- RETRIED, and removed; the visits put it into the index of its node.
local RETRIED = 60000000
local FAR = 4000000000000000
local now = clock()
local born = redis.call('ZSCORE', KEYS[1], '')
if not born then
  born = string.format('%.0f', now + FAR)
  redis.call('ZADD', KEYS[1], born, '')
end
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now + tonumber(ARGV[3])), 'WITHSCORES', 'LIMIT', 0,
  tonumber(ARGV[4]))
for i = 1, THIS_NODE and #due or 0, 2 do
  local name = string.match(due[i], '^>?(.*)$')
  if type(redis.pcall('HLEN', '{tenure:' .. name .. '}:meta')) == 'table' or name ~= due[i] then
    redis.call('ZREM', KEYS[1], due[i])
    if name == due[i] then
      redis.call('ZADD', KEYS[1], string.format('%.0f', now + RETRIED), '>' .. name)
    end
    due[i] = name
  end
end
local row = redis.pcall('HGET', KEYS[2], 'row')
local resumed = type(row) == 'string' and #row == 64 and struct.unpack('<d', row, 17) or 0
return { ARGV[1], now, 'ok', born, string.format('%.0f', resumed), due }
