-- ARGV 8..: member, term, the default grace, then for each detach: session, connection, epoch or 0.
-- Returns '' and for each 'd', 'l<grace>' when it was the last connection, 'n' when it is not attached, 'h<tenure>'
-- when another tenure has it, or 's<epoch>' when it was attached again since; or the reason why the tenure may not act.
local member, term, default = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10])
local tenure = member .. '@' .. text(term)

local reason = refusal(member, term)
if reason then
  engage_brake()
  commit()
  return { NONCE, now, 'ok', reason }
end

local function detach(name, connection, wanted)
  local s = load_session(name)
  local holder, epoch
  if s then
    holder, epoch = holder_of(s, connection)
  end
  if not holder then
    return 'n'
  elseif holder ~= tenure then
    return 'h' .. holder
  -- The epoch of a connection that reconcile restored is unknown. A lower one belongs to an earlier attach.
  elseif wanted ~= '0' and epoch ~= '0' and tonumber(wanted) < tonumber(epoch) then
    return 's' .. epoch
  end
  plan('SREM', connected_key(tenure), name .. '/' .. connection)
  local granted = disconnect(s, connection, default)
  if not granted then
    return 'd'
  end
  tell_session('session_disconnected', s, tenure, connection, 'reason', 'detached')
  return 'l' .. text(granted)
end

local outcomes = {}
for i = 11, #ARGV, 3 do
  outcomes[#outcomes + 1] = detach(ARGV[i], ARGV[i + 1], ARGV[i + 2])
end
flush_sessions()
engage_brake()
commit()
return { NONCE, now, 'ok', '', outcomes }
