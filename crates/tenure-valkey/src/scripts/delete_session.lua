-- ARGV 8: a session. Returns 'n' if it does not exist, 'c' and its number of connections, or 'd' and its last epoch.
local s = load_session(ARGV[8])
local what, number = 'n', 0
if s and connections(s) > 0 then
  what, number = 'c', connections(s)
elseif s then
  what, number = 'd', s.epoch
  forget_session(s)
  tell_session('session_deleted', s)
end
commit()
return { NONCE, now, 'ok', what, number }
