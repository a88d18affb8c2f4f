-- Settles a group whose grace is over and lifts a brake whose time is over; answers as `status.lua`.
if group.unsettled_until ~= 0 and now >= group.unsettled_until then
  event('group_settled', nil, 'reason', CAUSES[group.cause])
  group.unsettled_until, group.cause = 0, 0
end
lift_brake(false)
commit()
