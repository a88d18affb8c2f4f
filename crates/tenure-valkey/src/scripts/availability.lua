-- ARGV 3: the maximum age of a snapshot. Returns the stamp, the number of available providers, when they were counted,
-- and how many overdue members were not checked.
local AT_MOST_EVERY = 1000000
local fresh_for = tonumber(ARGV[3])
local due = redis.call('ZRANGE', PREFIX .. 'due', 0, 0, 'WITHSCORES')[2]
if roster.changed == 1 or (due and tonumber(due) <= now) then
  fresh_for = math.min(fresh_for, AT_MOST_EVERY)
end

if roster.counted_at == 0 or roster.counted_at > now or now >= roster.counted_at + fresh_for then
  local counts, left = count_online()
  roster.changed, roster.counted_at = 0, now
  roster.count, roster.left = math.max(0, counts.free - left), left
  if meta[1] then
    -- The count is valid even where it cannot be stored: on a replica, or when memory is full.
    redis.pcall('HSET', META, 'roster', pack_roster(roster))
  end
end
return { NONCE, now, 'ok', stamp(), roster.count, roster.counted_at, roster.left }
