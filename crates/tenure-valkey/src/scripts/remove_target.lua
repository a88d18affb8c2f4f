-- ARGV 8: the target. Returns 1 when it existed.
local TARGETS, target = PREFIX .. 'targets', ARGV[8]
local before = redis.call('HGET', TARGETS, target)
if before then
  plan('HDEL', TARGETS, target)
  event('target_changed', nil, 'lease', target, 'reason', 'removed')
end
commit()
return { NONCE, now, 'ok', before and 1 or 0 }
