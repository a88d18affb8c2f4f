-- ARGV 8..: the limit, the phase ('providers', 'tombstones', 'offlined', or a list), and the position: when the store
-- last resumed, a cursor, and names left over from the previous step.
-- Returns the stamp; for each row or removal its provider, its version, and the row or ''; each kind of drift with its
-- count; and the position to continue at as above, without the time of the resume, or nothing when the phase is
-- complete.
local limit, phase = tonumber(ARGV[8]), ARGV[9]
local TOMBSTONES, TOMBSTONES_AT = PREFIX .. 'tombstones', PREFIX .. 'tombstones:at'
local SCANS = { providers = 'HSCAN', tombstones = 'HSCAN', offlined = 'HSCAN', ['tombstones:at'] = 'ZSCAN', free = 'ZSCAN',
  offline = 'ZSCAN', ['offline:lapsed'] = 'ZSCAN', busy = 'SSCAN', barred = 'SSCAN', inactive = 'SSCAN' }
local PLACES = { 'free', 'busy', 'barred', 'inactive' }

local counts, kinds, entries = {}, {}, {}
local function drifted(kind)
  if not counts[kind] then
    counts[kind] = 0
    kinds[#kinds + 1] = kind
  end
  counts[kind] = counts[kind] + 1
end

-- A key of a foreign type is deleted by a step of its own; the next step finds it empty.
local gone = false
for suffix, scan in pairs(SCANS) do
  local key = PREFIX .. suffix
  if ask_ours(CARD[string.sub(scan, 1, 1)], key) == nil then
    touched[key], gone = true, true
    plan('UNLINK', key)
    drifted('broken_provider')
  else
    touched[key] = true
  end
end

local function is_name(name)
  return #name > 0 and #name <= 200 and not string.find(name, '[^A-Za-z0-9._:-]') and name ~= '.' and name ~= '..'
end

-- A name left over from the previous step may have been removed since.
local function is_there(name)
  local scan, key = SCANS[phase], PREFIX .. phase
  if scan == 'SSCAN' then
    return redis.call('SISMEMBER', key, name) == 1
  end
  return redis.call(scan == 'HSCAN' and 'HGET' or 'ZSCORE', key, name)
end

-- Some names of a key; `on` is the position to continue at. A small key is returned whole, and a scan step may return
-- more than asked for: the excess is left for the next step. A restarted server numbers its buckets differently, so an
-- older position is invalid.
local on = {}
local function some_names()
  local known = tonumber(ARGV[10]) == group.resumed
  local cursor, names, left = known and ARGV[11] or '0', {}, {}
  if known and #ARGV > 11 then
    for i = 12, #ARGV do
      if #names >= limit then
        left[#left + 1] = ARGV[i]
      elseif is_there(ARGV[i]) then
        names[#names + 1] = ARGV[i]
      end
    end
  else
    local scan = SCANS[phase]
    local found = redis.call(scan, PREFIX .. phase, cursor, 'COUNT', limit)
    cursor = found[1]
    for i = 1, #found[2], scan == 'SSCAN' and 1 or 2 do
      local list = #names < limit and names or left
      list[#list + 1] = found[2][i]
    end
  end
  if #left > 0 or cursor ~= '0' then
    on = { cursor, unpack(left) }
  end
  return names
end

local function read_tombstone(provider)
  local version, at = string.match(redis.call('HGET', TOMBSTONES, provider) or '', '^(%d+) (%d+)$')
  return tonumber(version), tonumber(at)
end

local function is_in(place, provider)
  if place == 'free' then
    return tonumber(redis.call('ZSCORE', PREFIX .. place, provider) or nil)
  end
  return redis.call('SISMEMBER', PREFIX .. place, provider) == 1
end

local function is_online(provider, row)
  return row.term > 0 and is_current(tenure_of(provider, row))
end

local REASONS = { left = true, lapsed = true, superseded = true, expelled = true, no_progress = true, unknown = true }

-- Checks that an ended tenure is listed as pending, at its own time.
local function check_pending(provider, row)
  local tenure = tenure_of(provider, row)
  local record = load_offlined(tenure)
  local reason, _, heard, ended = string.match(record or '', '^([%l_]+) (%d+) (%S+) (%d+)$')
  if not REASONS[reason or ''] or not (heard == '-' or string.match(heard, '^%d+$')) then
    reason = nil
  end
  local calm = tonumber(redis.call('ZSCORE', OFFLINE, tenure) or nil)
  local lapsed = tonumber(redis.call('ZSCORE', OFFLINE_LAPSED, tenure) or nil)
  if record == DONE then
    if not calm and not lapsed then
      return
    end
    plan('ZREM', OFFLINE, tenure)
    plan('ZREM', OFFLINE_LAPSED, tenure)
  elseif reason then
    local due = tonumber(ended) + BURST
    if (reason == 'lapsed' and lapsed == due and not calm) or (reason ~= 'lapsed' and calm == due and not lapsed) then
      return
    end
    plan('ZREM', OFFLINE, tenure)
    plan('ZREM', OFFLINE_LAPSED, tenure)
    plan('ZADD', reason == 'lapsed' and OFFLINE_LAPSED or OFFLINE, text(due), tenure)
  else
    if record or calm or lapsed then
      unpend(tenure)
    end
    local why, last, at = string.match(redis.call('HGET', ENDED, tenure) or '', '^([%l_]+) (%d+) (%d+)$')
    if why then
      pend(tenure, why, math.min(tonumber(last), tonumber(at)), nil, tonumber(at))
    elseif calm or lapsed then
      local at = math.max(0, (calm or lapsed) - BURST)
      pend(tenure, lapsed and 'lapsed' or 'left', at, nil, at)
    elseif not record then
      return
    end
  end
  drifted('offline_not_pending')
end

-- Checks one row in every direction.
local checked = {}
local function check_row(provider, row)
  if checked[provider] then
    return
  end
  checked[provider] = true
  roster.high = math.max(roster.high, row.version)
  local online = is_online(provider, row)
  local should, misplaced = place_of(row, online), false
  for _, place in ipairs(PLACES) do
    local there = is_in(place, provider)
    if place == should and (not there or (place == 'free' and there ~= row.occupancy)) then
      move(provider, nil, place, nil, row.occupancy)
      misplaced = true
    elseif place ~= should and there then
      move(provider, place, nil)
      misplaced = true
    end
  end
  if misplaced then
    drifted('provider_misplaced')
    note_change()
  end
  if row.term > 0 and not online then
    check_pending(provider, row)
  end
end

local function drop_row(provider)
  plan('HDEL', PROVIDERS, provider)
  rows[provider] = false
  note_change()
end

local CHECK = {}

function CHECK.providers(provider)
  local row = is_name(provider) and load_row(provider)
  if not row then
    drop_row(provider)
    drifted('broken_provider')
    return
  end
  local removed = read_tombstone(provider)
  if removed and removed > row.version then
    -- The tombstone is the newer of the two.
    drop_row(provider)
    drifted('broken_provider')
    return
  elseif removed then
    plan('HDEL', TOMBSTONES, provider)
    plan('ZREM', TOMBSTONES_AT, provider)
    drifted('provider_misplaced')
  end
  check_row(provider, row)
  entries[#entries + 1] = { provider, row.version, redis.call('HGET', PROVIDERS, provider) }
end

function CHECK.tombstones(provider)
  local version, at = read_tombstone(provider)
  if not version or version > LARGEST or not is_name(provider) then
    plan('HDEL', TOMBSTONES, provider)
    plan('ZREM', TOMBSTONES_AT, provider)
    drifted('broken_provider')
    return
  end
  if now >= at + TOMBSTONES_KEPT then
    plan('HDEL', TOMBSTONES, provider)
    plan('ZREM', TOMBSTONES_AT, provider)
    return
  end
  roster.high = math.max(roster.high, version)
  if tonumber(redis.call('ZSCORE', TOMBSTONES_AT, provider) or nil) ~= at then
    plan('ZADD', TOMBSTONES_AT, text(at), provider)
    drifted('provider_misplaced')
  end
  entries[#entries + 1] = { provider, version, '' }
end

CHECK['tombstones:at'] = function(provider)
  if not redis.call('HGET', TOMBSTONES, provider) then
    plan('ZREM', TOMBSTONES_AT, provider)
    drifted('index_without_provider')
  end
end

local function check_place(provider)
  local row = load_row(provider)
  if row then
    check_row(provider, row)
  else
    plan(phase == 'free' and 'ZREM' or 'SREM', PREFIX .. phase, provider)
    drifted('index_without_provider')
    note_change()
  end
end
for _, place in ipairs(PLACES) do
  CHECK[place] = check_place
end

local function check_offline(tenure)
  local provider, term = string.match(tenure, '^([^@]+)@(%d+)$')
  local row = provider and load_row(provider)
  if not row or row.term ~= tonumber(term) or tenure ~= tenure_of(provider, row) or is_online(provider, row) then
    unpend(tenure)
    plan('ZREM', PREFIX .. (phase == 'offlined' and 'offline' or phase), tenure)
    drifted('pending_without_provider')
  elseif not checked[provider] then
    checked[provider] = true
    check_pending(provider, row)
  end
end
CHECK.offlined, CHECK.offline, CHECK['offline:lapsed'] = check_offline, check_offline, check_offline

local old = not gone and redis.call('ZRANGEBYSCORE', TOMBSTONES_AT, '-inf', text(now - TOMBSTONES_KEPT), 'LIMIT', 0, 200) or {}
if #old > 0 then
  plan_whole('HDEL', TOMBSTONES, old)
  plan_whole('ZREM', TOMBSTONES_AT, old)
end
local forgotten = {}
for _, provider in ipairs(old) do
  forgotten[provider] = true
end

if gone then
  on = { unpack(ARGV, 11) }
else
  for _, name in ipairs(some_names()) do
    if not (forgotten[name] and string.sub(phase, 1, 10) == 'tombstones') then
      CHECK[phase](name)
    end
  end
end

roster.settings = tonumber(string.match(redis.call('HGET', META, 'settings') or '', '^(%d+) %d+ %d+ [01] %d+$')) or 0
local repaired = {}
for i, kind in ipairs(kinds) do
  repaired[2 * i - 1], repaired[2 * i] = kind, counts[kind]
end
roster.stale = true
commit()
return { NONCE, now, 'ok', stamp(), entries, repaired, on }
