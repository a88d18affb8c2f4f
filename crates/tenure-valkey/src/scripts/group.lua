-- A group and its members: numbers, gaps, ends, the brake, and the commit of a step. Part of every script that changes
-- a group; follows `lib.lua`.

-- The next number of the group's sequence, used for terms, tokens and revisions.
local function next_number()
  group.seq = math.max(group.seq + 1, now)
  if group.seq > 9007199254740991 then
    error({ err = 'ERR user_script: numbers below 2^53 are exhausted' })
  end
  return group.seq
end

-- The number of members, including planned joins and ends.
local present
local function count_members()
  if not present then
    present = redis.call('HLEN', MEMBERS)
  end
  return present
end

-- The number of recorded lapses, without those of this step.
local lapses
local function count_lapses()
  if not lapses then
    lapses = redis.call('ZCARD', LAPSES)
    touched[LAPSES] = true
  end
  return lapses
end

-- A ttl above this never counts as the longest ttl: a member that never lapses must not make a gap last forever.
local DAY = 86400000000
local function note_ttl(ttl)
  if ttl > DAY then
    return
  end
  if group.min_ttl == 0 or ttl < group.min_ttl then
    group.min_ttl = ttl
  end
  if ttl > group.max_ttl then
    group.max_ttl = ttl
  end
end

-- Restarts every ttl from the end of a gap. Records the cause by its number, and the newest number before a gap that may
-- have lost data. A grace that is over by now is not announced, nor is one that was met, and a store that does not serve
-- for long is one gap, not one for each step.
local SILENT, CLOCK_BACK, DATA_LOSS, TAIL_LOSS, NEW = 1, 2, 3, 4, 5
local function unsettle_from(at, cause, silence)
  group.last_of_gap = group.seq
  plan('HSET', META, 'last_of_gap', text(group.seq))
  local is_met = group.resumed <= now and at <= group.resumed
  group.resumed = Gap.resume(group.resumed, at, now)
  local is_loss = cause ~= SILENT and cause ~= CLOCK_BACK
  if count_members() == 0 or not is_loss and (is_met or at + group.max_ttl <= now) then
    return
  end
  group.unsettled_until = math.max(group.unsettled_until, at + group.max_ttl)
  group.cause = cause
  local is_same = silence and at - group.announced < silence
  local is_told = group.announced <= now and (is_same or at <= group.announced + Gap.of(group.min_ttl))
  if is_told and not is_loss then
    return
  end
  group.announced = at
  if silence then
    event('group_unsettled', nil, 'reason', CAUSES[cause], 'counts', 'silent_ms=' .. text(math.floor(silence / 1000)))
  else
    event('group_unsettled', nil, 'reason', CAUSES[cause])
  end
end

local function unsettle(cause)
  unsettle_from(now, cause)
end

-- After the clock fell back, stored times are in the future. Bounds are corrected immediately; `end_lapsed` corrects
-- the time indexes, a part at a time, unless the fall is too short to matter for them.
local fell = false
local function fall_back(gap)
  local longest = now + math.max(group.max_ttl, MAX_TTL)
  group.unsettled_until, group.grants = math.min(group.unsettled_until, longest), math.min(group.grants, longest)
  if group.brake_until ~= 0 then
    group.brake_since = math.min(group.brake_since, now)
    group.brake_until = math.min(group.brake_until, now + tonumber(ARGV[6]))
  end
  if group.last_tick - now > gap then
    fell = true
    plan('HSET', META, 'fell', '0 0 0')
  end
end

-- Creates a group that is new or has lost its data; the store's marker distinguishes the two.
local function create()
  group.born, group.tick, group.resumed, group.events = now, now, now, now
  if roster then
    roster.seeded, roster.stale = 0, true
  end
  local last = redis.call('XREVRANGE', EVENTS, '+', '-', 'COUNT', 1)
  if last[1] then
    group.events = math.max(now, tonumber(string.match(last[1][1], '^%d+')))
  end
  local marks = redis.call('HMGET', MARKER, 'born', 'settled', 'longest')
  local born, longest = tonumber(marks[1] or nil), math.max(MAX_TTL, tonumber(marks[3] or 0))
  if not born then
    born = now
    plan('HSETNX', MARKER, 'born', NOW)
  end
  if longest > tonumber(marks[3] or 0) then
    plan('HSET', MARKER, 'longest', text(longest))
  end
  -- A forgotten group continues its sequence and need not wait.
  local gone = redis.call('HGET', GONE, 'seq')
  if gone then
    group.seq, touched[GONE] = math.max(group.seq, tonumber(gone)), true
    plan('UNLINK', GONE)
  end
  local until_then = math.min(born, now) + longest
  if not marks[2] and not gone and until_then > now then
    group.unsettled_until, group.grants, group.cause = until_then, until_then, NEW
    event('group_unsettled', nil, 'reason', CAUSES[NEW])
  end
end

-- Looks for a gap, on the clock reading and the snapshot of this step.
local function meet_gap()
  local id, at, cause, silence = Gap.look(META, now, group.last_tick, group.resumed, group.min_ttl, group.pulse)
  group.pulse = id
  if at then
    unsettle_from(at, cause, silence)
  end
  if now < group.last_tick then
    fall_back(Gap.of(group.min_ttl))
  end
end

if not stored[1] then
  create()
  group.last_tick = now
end
-- Beats look only if they must; see `renew`.
if not Gap.RENEWS then
  meet_gap()
end
group.tick = now

-- Members: MEMBERS has the term of the current tenure, packed as a double. ALIVE has, by tenure, deadline, ttl and
-- revision. Members that beat together and own nothing then share one value, which Lua creates once; and a beat of an
-- older term finds no value.
local function unpack_tenure(term, row)
  local deadline, ttl, revision, marks = unpack_life(row)
  return { term = term, deadline = deadline, ttl = ttl, revision = revision, marks = marks }
end
local function load_tenure(tenure)
  local row = redis.call('HGET', ALIVE, tenure)
  return row and unpack_tenure(term_of(tenure), row)
end
local function load_member(member)
  local packed = redis.call('HGET', MEMBERS, member)
  return packed and load_tenure(member .. '@' .. text((struct.unpack('<d', packed))))
end
local function save_member(member, m)
  plan('HSET', ALIVE, member .. '@' .. text(m.term), pack_life(m.deadline, m.ttl, m.revision, m.marks or 0))
end

-- The refusal of beats by a daemon, as in `refusal.rs`: since when, and until when it counts.
local refused_since, refused_until = unpack_refusal(stored[5])
local function note_refusal()
  if refused_until > now or now > refused_until + MAX_TTL then
    refused_since = now
  end
  refused_until = math.min(now, refused_since + MAX_TTL)
  plan('HSET', META, 'refused', pack_refusal(refused_since, refused_until))
end
-- The instant at which every ttl last restarted.
local function given_at()
  return refused_until > now and group.resumed or math.max(group.resumed, refused_until)
end

-- The end of a span that restarted for all at `given`. An end further away than the span itself was computed by a clock
-- that has since fallen back.
local function end_since(given, at, time)
  if Gap.is_before_fall(at, now, time) then
    return given + time
  end
  return math.max(at, given + time)
end
-- The end of a tenure.
local function end_of(m)
  return end_since(given_at(), m.deadline, m.ttl)
end

local ended_now, lapsed_now, lapses_added = {}, false, 0

-- Why a tenure ended, or nil.
local function reason_of(tenure)
  local record = ended_now[tenure] or redis.call('HGET', ENDED, tenure)
  return record and string.match(record, '^%S+')
end

local function holds_anything(tenure)
  return redis.call('SCARD', held_key(tenure)) > 0 or redis.call('SCARD', leased_key(tenure)) > 0
    or redis.call('SCARD', connected_key(tenure)) > 0
end

-- Reports the end of a tenure to the roster; see `offline.lua`, which follows.
local note_offline

-- The leases; see `lease.lua`. `waits`: how long until another tenure can have what a tenure holds; false for now.
-- `begun`: the tenures that begin in this step, by member.
local Lease = { waits = {}, begun = {} }

-- A caller names a number that was never issued: the tail is lost. Any caller that may beat can send such a number, so
-- it is accepted once in two max ttls, as in `recall.rs`.
function Lease.note_lost_tail(number)
  local believed = group.believed or tonumber(redis.call('HGET', META, 'believed') or 0)
  if believed > 0 and believed <= now and now - believed < 2 * MAX_TTL then
    return
  end
  group.believed = now
  plan('HSET', META, 'believed', NOW)
  unsettle(TAIL_LOSS)
  group.seq = math.max(group.seq, number)
end

-- An unknown revision was issued before the tail was lost, unless a gap has been noticed since. A revision from the
-- future was never issued.
function Lease.compare(wanted, known)
  if wanted > known and wanted > group.resumed and wanted <= now + 1000000 then
    Lease.note_lost_tail(wanted)
  end
end

-- Ends a member's current tenure for good, with the end time to record if it is not that of its last beat, and a text for
-- the event.
local function finish(member, m, reason, at, note)
  local tenure = member .. '@' .. text(m.term)
  count_members()
  present = present - 1
  plan('HDEL', MEMBERS, member)
  plan('HDEL', ALIVE, tenure)
  plan('HDEL', LABELS, member)
  plan('ZREM', DUE, member)
  ended_now[tenure] = reason .. ' ' .. text(at or end_of(m)) .. ' ' .. NOW
  plan('HSET', ENDED, tenure, ended_now[tenure])
  Lease.waits[tenure] = nil
  if Lease.note_end then
    Lease.note_end(tenure)
  end
  -- A tenure gets a revision with its first holding: most members never have one.
  if m.revision ~= 0 and holds_anything(tenure) then
    plan('ZADD', reason == 'lapsed' and LAPSED or RELEASING, text(now + BURST), tenure)
    plan('SADD', unreleased_key(member), tenure)
  else
    plan('ZADD', FORGET, text(now + 2 * MAX_TTL), tenure)
  end
  if roster then
    note_offline(member, tenure, m, reason)
  end
  if note and note ~= '' then
    event(reason, tenure, 'reason', note)
  else
    event(reason, tenure)
  end
  if reason == 'lapsed' then
    plan('ZADD', LAPSES, NOW, member)
    lapses_added = lapses_added + 1
  end
  return tenure
end

-- How long until another tenure can have what this one holds, if it sends no more beats. Takes the member's entry when
-- the tenure is current. The process of a tenure that was superseded, expelled or without progress may still
-- be working until its last deadline.
local function free_in(tenure, m)
  if m then
    return math.max(0, end_of(m) - now)
  end
  local record = ended_now[tenure] or redis.call('HGET', ENDED, tenure)
  local reason, last, at = string.match(record or '', '^(%S+) (%d+) (%d+)$')
  if reason ~= 'superseded' and reason ~= 'expelled' and reason ~= 'no_progress' then
    return 0
  end
  last, at = tonumber(last), tonumber(at)
  return math.max(0, end_since(group.resumed, last, math.max(0, last - at)) - now)
end

-- Whether a tenure may act: nil and its member's entry, or the reason why not. A tenure past its end is ended, whatever
-- the step does next.
local function refusal(member, term)
  local tenure = member .. '@' .. text(term)
  local m = load_tenure(tenure)
  if m then
    if now < end_of(m) then
      return nil, m
    end
    finish(member, m, 'lapsed')
    return 'lapsed'
  end
  return reason_of(tenure) or 'unknown'
end

-- Notes that a tenure lost a holding; `commit` checks whether it was the last one, so the record of an ended tenure may
-- expire.
local function lose(tenure)
  if not emptied[tenure] then
    emptied[tenure] = true
    emptied[#emptied + 1] = tenure
  end
end

local function too_many(lapsed)
  local whole = count_members() + lapsed
  return whole >= tonumber(ARGV[5]) and lapsed > tonumber(ARGV[4]) * whole
end

-- Runs at the end of every step that may add or end members. `gone`: lapses that the step itself took back.
local function engage_brake(gone)
  if group.brake_until ~= 0 then
    return
  end
  local kept = count_lapses()
  if kept + lapses_added == 0 then
    return
  end
  local from = text(now - group.max_ttl)
  local old = redis.call('ZRANGEBYSCORE', LAPSES, '-inf', '(' .. from, 'LIMIT', 0, 1000)
  if #old > 0 then
    plan_whole('ZREM', LAPSES, old)
    kept = redis.call('ZCOUNT', LAPSES, from, '+inf')
  end
  local lapsed = kept + lapses_added - (gone or 0)
  if too_many(lapsed) then
    group.brake_since, group.brake_until = now, now + tonumber(ARGV[6])
    event('sweep_braked', nil, 'counts', 'lapsed=' .. text(lapsed) .. ' present=' .. text(count_members()))
  end
end

local function lift_brake(force)
  if group.brake_until == 0 then
    return
  end
  local reason
  if force then
    reason = 'operator'
  elseif now >= group.brake_until then
    reason = 'time'
  elseif not too_many(count_lapses()) then
    reason = 'recovered'
  else
    return
  end
  group.brake_since, group.brake_until = 0, 0
  if reason ~= 'recovered' then
    count_lapses()
    plan('UNLINK', LAPSES)
  end
  event('sweep_unbraked', nil, 'reason', reason)
end

-- What `commit` checks for each write before the first one: that the user may run it (a permission may be revoked while
-- connected), that the key has the right type, and that it is on this node. `HSET` is itself the first write.
local CARD = { H = 'HLEN', Z = 'ZCARD', S = 'SCARD', X = 'XLEN' }
local allowed = { HSET = true }
local function touch(command, key)
  if not allowed[command] then
    if redis.acl_check_cmd and not redis.acl_check_cmd(command, key) then
      error({ err = 'NOPERM this user has no permissions to run ' .. command .. ' on ' .. key })
    end
    allowed[command] = true
  end
  if not touched[key] then
    redis.call(CARD[string.sub(command, 1, 1)], key)
    touched[key] = true
  end
end

-- A tenure that holds nothing leaves the work lists; from then on its record may expire.
local function settle_emptied(tenure)
  if holds_anything(tenure) then
    return
  end
  local record = redis.call('HGET', ENDED, tenure)
  if record then
    redis.call('ZREM', RELEASING, tenure)
    redis.call('ZREM', LAPSED, tenure)
    redis.call('SREM', unreleased_key(member_of(tenure)), tenure)
    local ended_at = math.min(now, tonumber(string.match(record, '(%d+)$')))
    redis.call('ZADD', FORGET, text(ended_at + 2 * MAX_TTL), tenure)
  end
end

-- Beats that only renew, soon after the last step, need no look: a gap would only lengthen lives. `is_past`: whether one
-- of their tenures would be ended.
local function renew(is_past)
  if not Gap.is_near(group.last_tick, now, Gap.of(group.min_ttl)) or is_past() then
    meet_gap()
  end
end

-- The log is also bounded in bytes, by an estimate from its oldest and newest entries. No counter is kept, so none can
-- drift. A log that is short enough even with entries of maximum size is not sampled, and of a long log only one of
-- 64 events is the occasion. A user who may not trim has only the bound in number.
local SAMPLE, LONGEST = 16, 65536
local function trim_log(added, most)
  local entries = redis.call('XLEN', EVENTS)
  local every = math.max(1, math.min(64, math.floor(entries / 16)))
  if entries * LONGEST <= most or entries % every >= added
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
    redis.call('XTRIM', EVENTS, 'MAXLEN', '~', text(kept))
  end
end

-- The index of due groups gets the earliest time that this step planned, in the same step: if this
-- process dies after it, another one knows. Only a visit raises an entry; see `status.lua`.
local MAKES_DUE = { [DUE] = true, [RELEASING] = true, [LAPSED] = true, [PREFIX .. 'disconnected'] = true,
  [PREFIX .. 'offline'] = true, [PREFIX .. 'offline:lapsed'] = true, [PREFIX .. 'wake'] = true }
local function planned_due()
  local first = math.huge
  if group.unsettled_until > now then
    first = group.unsettled_until
  end
  local is_planned = false
  for _, write in ipairs(plans) do
    if write[1] == 'ZADD' and MAKES_DUE[write[2]] then
      local list, from, to = write.list or write, write.list and 1 or 3, write.list and #write.list or write.n
      while from <= to and not tonumber(list[from]) do
        from = from + 1
      end
      for i = from, to, 2 do
        first = math.min(first, tonumber(list[i]))
      end
      is_planned = true
    end
  end
  return is_planned and first < math.huge and text(first)
end

local function commit()
  for _, write in ipairs(plans) do
    touch(write[1], write[2])
  end
  for _, tenure in ipairs(emptied) do
    touch('SREM', held_key(tenure))
    touch('SREM', leased_key(tenure))
    touch('SREM', connected_key(tenure))
    touch('SREM', unreleased_key(member_of(tenure)))
  end
  if #emptied > 0 then
    touch('HSET', ENDED)
    touch('ZREM', RELEASING)
    touch('ZREM', LAPSED)
    touch('ZADD', FORGET)
  end
  if #news > 0 then
    touch('XADD', EVENTS)
  end
  -- Event numbers are built like terms: above the previous one and not below the clock, so none is issued twice after a
  -- lost tail. The second part of an id is the difference to the previous number, so a reader can tell whether unread
  -- events were trimmed.
  local ids = {}
  for i = 1, #news do
    local number = math.max(group.events + 1, now)
    ids[i], group.events = text(number) .. '-' .. text(number - group.events), number
  end
  local changed = { 'state', struct.pack(STATE, group.born, group.tick, group.resumed, group.min_ttl, group.max_ttl,
    group.unsettled_until, group.cause, group.grants, group.brake_since, group.brake_until) }
  if group.seq ~= tonumber(stored[2]) then
    changed[3], changed[4] = 'seq', text(group.seq)
  end
  if group.events ~= tonumber(stored[3]) then
    changed[#changed + 1], changed[#changed + 2] = 'events', text(group.events)
  end
  if roster and roster.stale then
    changed[#changed + 1], changed[#changed + 2] = 'roster', pack_roster(roster)
  end
  local due_at = Gap.DUE_GROUPS and planned_due()
  local known, announced = Gap.known(stored[6])
  if group.pulse ~= known or group.announced ~= announced then
    changed[#changed + 1], changed[#changed + 2] = 'pulse', struct.pack('<dd', group.pulse, group.announced)
  end
  redis.call('HSET', META, unpack(changed))
  if due_at then
    redis.pcall('ZADD', Gap.DUE_GROUPS, 'LT', due_at, string.match(META, '^{tenure:(.*)}:meta$'))
  end
  for _, write in ipairs(plans) do
    if write.list then
      redis.call(write[1], write[2], unpack(write.list))
    else
      redis.call(unpack(write, 1, write.n))
    end
  end
  for _, tenure in ipairs(emptied) do
    settle_emptied(tenure)
  end
  for i = 1, #news - 1 do
    redis.call('XADD', EVENTS, ids[i], unpack(news[i]))
  end
  if #news > 0 then
    local most, most_bytes = string.match(ARGV[7], '^(%d+) (%d+)$')
    local exactly = tonumber(most) <= 10000 and '=' or '~'
    redis.call('XADD', EVENTS, 'MAXLEN', exactly, most, ids[#news], unpack(news[#news]))
    trim_log(#news, tonumber(most_bytes))
  end
  if Lease.publish then
    Lease.publish()
  end
end
