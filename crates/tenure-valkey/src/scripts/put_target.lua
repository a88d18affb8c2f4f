-- ARGV 8..: the target, its specification. Returns 1 when it is new.
local TARGETS, target, spec = PREFIX .. 'targets', ARGV[8], ARGV[9]
local before = redis.call('HGET', TARGETS, target)
if before ~= spec then
  plan('HSET', TARGETS, target, spec)
  event('target_changed', nil, 'lease', target, 'reason', before and 'changed' or 'added')
end
commit()
return { NONCE, now, 'ok', before and 0 or 1 }
