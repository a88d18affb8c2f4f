-- ARGV 8: the process whose waiters this confirms, or ''. Settles a group whose grace is over and lifts an expired brake;
-- returns the status.
if not stored[1] and redis.call('HGET', GONE, 'seq') then
  -- The group was forgotten, and a sweep does not recreate it.
  return status()
end
if group.unsettled_until ~= 0 and now >= group.unsettled_until then
  event('group_settled', nil, 'reason', CAUSES[group.cause])
  group.unsettled_until, group.cause = 0, 0
end
if ARGV[8] ~= '' then
  Lease.confirm(ARGV[8])
  Lease.forget_nodes()
end
Lease.finish()
lift_brake(false)

-- Since when every visit has found it empty. A group with a roster never counts as empty: a gap makes its mirror
-- doubtful.
local since = tonumber(redis.call('HGET', META, 'empty') or nil)
local has_roster = roster and roster.high + roster.seeded + roster.settings > 0
if has_roster or count_members() > 0 or is_occupied() then
  if since then
    plan('HDEL', META, 'empty')
  end
elseif not since or since > now then
  plan('HSET', META, 'empty', NOW)
end

commit()
return visited()
