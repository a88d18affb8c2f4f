-- ARGV 8..10: the sweeper, how many bytes of events are kept, the process whose waiters this confirms, or ''.
-- Settles a group whose grace is over and lifts an expired brake; returns the status, with a later due time for a
-- sweeper that is not needed before that.
if not stored[1] and redis.call('HGET', GONE, 'seq') then
  -- The group was forgotten, and a sweep does not recreate it.
  return status()
end
if group.unsettled_until ~= 0 and now >= group.unsettled_until then
  event('group_settled', nil, 'reason', CAUSES[group.cause])
  group.unsettled_until, group.cause = 0, 0
end
if ARGV[10] ~= '' then
  Lease.confirm(ARGV[10])
  Lease.forget_nodes()
end
Lease.finish()
lift_brake(false)

-- Since when every tick has found it empty. A group with a roster never counts as empty: a gap in its ticks makes the
-- mirror doubtful.
local since = tonumber(redis.call('HGET', META, 'empty') or nil)
local has_roster = roster and roster.high + roster.seeded + roster.settings > 0
if has_roster or count_members() > 0 or is_occupied() then
  if since then
    plan('HDEL', META, 'empty')
  end
elseif not since or since > now then
  plan('HSET', META, 'empty', NOW)
end

-- In a large group entries of the index come due all the time, and one sweeper is enough. The first sweeper that finds
-- an entry due takes the slot for a while and keeps it by returning; the others return when that time is over. The slot
-- only saves work: a sweep without it is just as correct.
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
-- The log is also bounded in bytes, by an estimate from its oldest and newest entries. No counter is kept, so none can
-- drift. A log that is short enough even with entries of maximum size is not sampled. A user who may not trim has only
-- the bound in number. Without a recent event there is nothing to trim, and sampling costs more than the rest of a tick.
-- The number of an event is not below the clock at its time.
local SAMPLE, LONGEST, RECENT = 16, 65536, 10000000
local function trim_log(most)
  if group.events + RECENT < now then
    return
  end
  local entries = redis.pcall('XLEN', EVENTS)
  if type(entries) ~= 'number' or entries * LONGEST <= most
    or redis.acl_check_cmd and not redis.acl_check_cmd('XTRIM', EVENTS) then
    return
  end
  local looked, bytes = 0, 0
  for _, part in ipairs({ redis.call('XRANGE', EVENTS, '-', '+', 'COUNT', SAMPLE),
    redis.call('XREVRANGE', EVENTS, '+', '-', 'COUNT', SAMPLE) }) do
    for _, entry in ipairs(part) do
      looked, bytes = looked + 1, bytes + 32
      for _, field in ipairs(entry[2]) do
        bytes = bytes + #field + 3
      end
    end
  end
  local kept = math.max(1, math.floor(most * looked / bytes))
  if entries > kept then
    plan_whole('XTRIM', EVENTS, { 'MAXLEN', '~', text(kept) })
  end
end
trim_log(tonumber(ARGV[9]))
commit()
return status(not_before)
