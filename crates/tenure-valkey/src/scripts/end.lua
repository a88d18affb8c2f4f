-- ARGV 8..: member, term, 'left', 'expelled' or 'no_progress'; '1' when nothing of the tenure runs any more; a text for
-- the event, or ''. Returns the recorded reason, or 'unknown'.
local member, term = ARGV[8], tonumber(ARGV[9])
local reason, m = refusal(member, term)
if not reason then
  reason = ARGV[10]
  finish(member, m, reason, ARGV[11] == '1' and now, ARGV[12])
end
Lease.finish()
engage_brake()
commit()
return { NONCE, now, 'ok', reason }
