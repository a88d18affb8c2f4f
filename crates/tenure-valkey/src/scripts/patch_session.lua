-- ARGV 8..: member or '', term, session, then each field with its JSON or '' to remove it. Returns '' and 'n' if the
-- session does not exist, 'f' for too many fields, or the session; or the reason why the tenure may not act.
local member, change = ARGV[8], {}
if member ~= '' then
  local reason = refusal(member, tonumber(ARGV[9]))
  if reason then
    engage_brake()
    commit()
    return { NONCE, now, 'ok', reason }
  end
end
for i = 11, #ARGV, 2 do
  change[ARGV[i]] = ARGV[i + 1]
end

local function patch()
  local s = load_session(ARGV[10])
  if reap_if_over(s) or not s then
    return 'n'
  end
  load_whole(s)
  if fields_after(s, change) > 64 then
    return 'f'
  end
  if next(change) then
    merge(s, change)
    save_session(s)
  end
  return seen(s, 0)
end

local outcome = patch()
flush_sessions()
engage_brake()
commit()
return { NONCE, now, 'ok', '', outcome }
