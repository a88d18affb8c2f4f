-- ARGV 8: the cause that an operator names, or ''. Ends the grace of a group if it has that cause, or is only new.
-- Returns 'e' for ended, 's' for already settled, 'l' for left as it is; and the cause.
local named, cause = ARGV[8] == '' and CAUSES[NEW] or ARGV[8], CAUSES[group.cause] or ''
local answer = 's'
if group.unsettled_until ~= 0 then
  answer = named == cause and 'e' or 'l'
end
if answer == 'e' then
  group.unsettled_until, group.grants, group.cause = 0, 0, 0
  event('group_settled', nil, 'reason', 'operator')
  Lease.wake_all()
  Lease.finish()
end
commit()
return { NONCE, now, 'ok', answer, cause }
