-- ARGV 8..: member, term, labels as JSON or ''. Returns the reason why the tenure may not act, or ''.
local member, term, labels = ARGV[8], tonumber(ARGV[9]), ARGV[10]

local reason = refusal(member, term)
if not reason and labels ~= (redis.call('HGET', LABELS, member) or '') then
  if labels == '' then
    plan('HDEL', LABELS, member)
  else
    plan('HSET', LABELS, member, labels)
  end
  event('labels_changed', member .. '@' .. text(term))
end
engage_brake()
commit()
return { NONCE, now, 'ok', reason or '' }
