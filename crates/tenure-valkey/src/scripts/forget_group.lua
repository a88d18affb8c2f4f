-- ARGV 8, 9: how long the group must have been empty; how long its last number is kept, in ms. Returns 'g' when it is
-- removed, 'k' when it is kept, 'a' when there is no such group.
local LISTS = { 'members', 'alive', 'labels', 'due', 'ended', 'forget', 'releasing', 'releasing:lapsed', 'lapses', 'leases',
  'shared', 'shared:more', 'limits', 'waits', 'waits:until', 'wake', 'nodes', 'passed', 'reserved', 'reservations',
  'targets', 'sessions', 'disconnected', 'aliases', 'events', 'store', 'meta' }
if not stored[1] then
  return { NONCE, now, 'ok', 'a' }
end
local since = tonumber(redis.call('HGET', META, 'empty') or nil)
if not since or since > now or now - since < tonumber(ARGV[8]) then
  commit()
  return { NONCE, now, 'ok', 'k' }
end

local function has_any(keys)
  for _, key in ipairs(keys) do
    if redis.call('HLEN', PREFIX .. key) > 0 then
      return true
    end
  end
end
local kept = roster or group.unsettled_until ~= 0 or group.brake_until ~= 0 or group.seq > now or count_members() > 0
  or is_occupied() or has_any({ 'ended', 'shared', 'waits', 'reserved', 'targets', 'aliases' })
if kept then
  plan('HSET', META, 'empty', NOW)
  commit()
  return { NONCE, now, 'ok', 'k' }
end
plan('HSET', GONE, 'seq', text(group.seq))
plan('PEXPIRE', GONE, ARGV[9])
for _, list in ipairs(LISTS) do
  touched[PREFIX .. list] = true
  plan('UNLINK', PREFIX .. list)
end
commit()
if Gap.DUE_GROUPS then
  redis.pcall('ZREM', Gap.DUE_GROUPS, string.match(META, '^{tenure:(.*)}:meta$'))
end
return { NONCE, now, 'ok', 'g' }
