-- ARGV 3..5: the list, the first rank, the limit. Returns the ended tenures that hold something: tenure, reason, how
-- many claims, leases and connections; and the state of the brake: until when, the lapses, the members.
local from, count = tonumber(ARGV[4]), tonumber(ARGV[5])
local found = {}
for _, tenure in ipairs(redis.call('ZRANGE', PREFIX .. ARGV[3], from, from + count - 1)) do
  local record = redis.call('HGET', PREFIX .. 'ended', tenure)
  found[#found + 1] = { tenure, record and string.match(record, '^%S+') or 'unknown', holds(tenure) }
end
local state = redis.call('HGET', META, 'state')
local brake_until = state and select(10, struct.unpack(STATE, state))
return { NONCE, now, 'ok', brake_until, redis.call('ZCARD', PREFIX .. 'lapses'),
  redis.call('HLEN', PREFIX .. 'members'), found }
