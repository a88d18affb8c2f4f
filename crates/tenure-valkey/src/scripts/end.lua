-- ARGV 8..: member, term, 'left' or 'expelled'. Returns the recorded reason, or 'unknown'.
local member, term = ARGV[8], tonumber(ARGV[9])
local reason, m = refusal(member, term)
if not reason then
  reason = ARGV[10]
  finish(member, m, reason)
end
engage_brake()
commit()
return { NONCE, now, 'ok', reason }
