-- ARGV 8..: the limit, the pass, '1' to lift the brake. Returns whether more may be due, the brake (since, until,
-- lapsed, present) or {}, how many index entries had no disconnected session, and each reaped session with its epoch.
local limit, pass = tonumber(ARGV[8]), ARGV[9]

lift_brake(ARGV[10] == '1')
if group.brake_until ~= 0 then
  commit()
  return { NONCE, now, 'ok', 0, { group.brake_since, group.brake_until, count_lapses(), count_members() }, 0, {} }
end

local due, skipped, reaped = redis.call('ZRANGEBYSCORE', AWAY, '-inf', NOW, 'LIMIT', 0, limit), 0, {}
for _, name in ipairs(due) do
  local s = load_session(name)
  if not s or s.reap_at == 0 or connections(s) > 0 then
    -- The index alone never justifies a deletion.
    plan('ZREM', AWAY, name)
    skipped = skipped + 1
  elseif now < over_at(s) then
    plan('ZADD', AWAY, text(over_at(s)), name)
  else
    forget_session(s)
    tell_session('session_reaped', s, nil, nil, 'pass', pass)
    reaped[#reaped + 1], reaped[#reaped + 2] = name, s.epoch
  end
end
commit()
local more = #due > 0 and #redis.call('ZRANGEBYSCORE', AWAY, '-inf', NOW, 'LIMIT', 0, 1) > 0
return { NONCE, now, 'ok', more and 1 or 0, {}, skipped, reaped }
