-- ARGV 8..: how many; '1' when a tenure may be repeated; their new ttls as doubles (0 for none), or ''; the revisions
-- of the lists that the callers applied as doubles, or '' for none; the highest revisions that they name, or '' when
-- those are the highest; their tenures. Returns for each the ttl it was renewed for, 0 when unknown, or minus the number
-- of the end reason; and for each its revision.
local count, ttls, told, newest = tonumber(ARGV[8]), ARGV[10], ARGV[11], ARGV[12]
local known = ARGV[9] == '1' and {} or nil
local REASON = { lapsed = -1, left = -2, superseded = -3, expelled = -4, no_progress = -5 }

local tenures = {}
for i = 1, count do
  tenures[i] = ARGV[12 + i]
end
local rows = count > 0 and redis.call('HMGET', ALIVE, unpack(tenures)) or {}

-- Waiting requests may be granted in this step.
renew(function()
  if redis.call('HLEN', PREFIX .. 'waits') > 0 then
    return true
  end
  local given = given_at()
  for i = 1, count do
    if rows[i] then
      local deadline, ttl = unpack_life(rows[i])
      if now >= end_since(given, deadline, ttl) then
        return true
      end
    end
  end
end)

local min_ttl, max_ttl = group.min_ttl, group.max_ttl

-- A term above the sequence that this incarnation of the store should know.
local function unknown(term)
  if group.seq < term and term <= now and term > group.born then
    group.max_ttl = max_ttl
    Lease.note_lost_tail(term)
  end
  -- A beat names a term from before the group was created: the group is not new but has lost its data.
  if group.cause == NEW and group.unsettled_until > 0 and term < group.born then
    if count_members() > 0 then
      group.max_ttl = max_ttl
      unsettle(DATA_LOSS)
    else
      group.cause = DATA_LOSS
      event('group_unsettled', nil, 'reason', CAUSES[DATA_LOSS])
    end
  end
  return 0
end

local replies, revisions, renewed, n = {}, {}, {}, 0
for i = 1, count do
  local tenure, row = tenures[i], rows[i]
  if known and known[tenure] ~= nil then
    row = known[tenure]
  end
  revisions[i] = 0
  if not row then
    local reason = reason_of(tenure)
    replies[i] = reason and REASON[reason] or unknown(term_of(tenure))
  else
    local deadline, ttl, revision, marks = unpack_life(row)
    local named = told ~= '' and struct.unpack('<d', told, 8 * i - 7) or 0
    -- The end of a tenure, as in `end_of`; inlined because this is the hot path.
    local last = given_at() + ttl
    if deadline > last and not Gap.is_before_fall(deadline, now, ttl) then
      last = deadline
    end
    if now >= last then
      finish(member_of(tenure), { term = term_of(tenure), deadline = deadline, ttl = ttl, revision = revision }, 'lapsed')
      replies[i] = -1
      if known then
        known[tenure] = false
      end
    else
      if ttls ~= '' then
        local new = struct.unpack('<d', ttls, 8 * i - 7)
        if new > 0 then
          if new < ttl then
            Lease.wake_of(tenure)
            plan_whole('ZADD', DUE, { 'LT', text(now + new), member_of(tenure) })
          end
          ttl = new
        end
      end
      if ttl <= DAY then
        if min_ttl == 0 or ttl < min_ttl then
          min_ttl = ttl
        end
        if ttl > max_ttl then
          max_ttl = ttl
        end
      end
      group.max_ttl = max_ttl
      Lease.compare(newest ~= '' and struct.unpack('<d', newest, 8 * i - 7) or named, revision)
      -- Another number may be of a history that the store has lost.
      local is_revoked = marks >= REVOKED
      if is_revoked and named == revision then
        Lease.notice(tenure)
        is_revoked = false
      end
      row = pack_life(now + ttl, ttl, revision, (named > 0 and NAMED or 0) + (is_revoked and REVOKED or 0))
      renewed[n + 1], renewed[n + 2] = tenure, row
      n = n + 2
      replies[i], revisions[i] = ttl, revision
      if known then
        known[tenure] = row
      end
    end
  end
end
if n > 0 then
  group.min_ttl, group.max_ttl = min_ttl, max_ttl
  plan_whole('HSET', ALIVE, renewed)
end
Lease.finish()
engage_brake()
commit()
return { NONCE, now, 'ok', replies, revisions }
