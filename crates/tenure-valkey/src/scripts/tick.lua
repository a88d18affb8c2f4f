-- ARGV 8: who sweeps. Settles a group whose grace is over and lifts a brake whose time is over; answers the status, with a
-- later due time for whoever need not come before that.
if group.unsettled_until ~= 0 and now >= group.unsettled_until then
  event('group_settled', nil, 'reason', CAUSES[group.cause])
  group.unsettled_until, group.cause = 0, 0
end
lift_brake(false)

-- In a large group places in the index come due all the time, and one sweeper is enough to look after them. Whoever finds
-- one due has the slot for a while and keeps it by coming back; the others come when that time is over. It only saves
-- work: whoever sweeps without the slot does it just as well.
local SLOT = 250000
local not_before
local due = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2]
if due and tonumber(due) <= now then
  local who, till = string.match(redis.call('HGET', META, 'slot') or '', '^(%S+) (%d+)$')
  till = tonumber(till or 0)
  if who ~= ARGV[8] and now < till and till <= now + SLOT then
    not_before = till
  elseif who ~= ARGV[8] or till < now + SLOT / 2 or till > now + SLOT then
    plan('HSET', META, 'slot', ARGV[8] .. ' ' .. text(now + SLOT))
  end
end
commit()
return status(not_before)
