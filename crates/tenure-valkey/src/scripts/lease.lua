-- The leases of a group. Part of every script that acquires or frees leases; follows `offline.lua`.
--
-- LEASES has, by lease, the grant of an exclusive lease: 'tenure token', or 'tenure token request revision limit' with
-- the number of the request that asked for it ('-' for none) and an operator's release (0 for none); and '*' for a
-- shared lease that is held. The grants of a shared lease are in a hash of their own, by tenure:
-- 'place/places/generation token', or with the same three more. A tenure has at most one place of a lease. SHARED has
-- the number of places of each shared lease that is held or reserved, and its generation. MORE has 'lease/1' to
-- 'lease/n-1' for a shared lease with n grants, so that the number of grants of the group is known.
--
-- RESERVED has, by lease, or by 'lease/place' of a shared one, 'until member', or 'until member tenure' for a waiter. A
-- reservation for a member without a living tenure is over.
do
local SHARED, MORE = PREFIX .. 'shared', PREFIX .. 'shared:more'
-- Grants that an operator released: by the time at which they end in any case, and by tenure.
local LIMITS = PREFIX .. 'limits'
function Lease.revoked_key(tenure)
  return PREFIX .. 'revoked:' .. tenure
end
local function holders_key(name)
  return PREFIX .. 'holders:' .. name
end

local function foreign_lease()
  error({ err = 'ERR user_script: a lease in an unknown format' })
end

-- A grant as stored; `first` is the tenure of an exclusive lease, or the place of a shared one.
local function parse_grant(value)
  local first, token = string.match(value, '^(%S+) (%d+)$')
  if first then
    return { first = first, token = token, revision = 0, limit = 0 }
  end
  local request, revision, limit
  first, token, request, revision, limit = string.match(value, '^(%S+) (%d+) (%S+) (%d+) (%d+)$')
  if not first then
    foreign_lease()
  end
  return { first = first, token = token, request = request ~= '-' and request or nil, revision = tonumber(revision),
    limit = tonumber(limit) }
end

local function grant_text(row)
  local value = row.first .. ' ' .. row.token
  if row.request or row.revision > 0 then
    value = value .. ' ' .. (row.request or '-') .. ' ' .. text(row.revision) .. ' ' .. text(row.limit)
  end
  return value
end

-- A running reservation. One that ends later than possible was made before the clock fell back; it is over.
local function parse_reservation(value)
  local till, heir, waiter = string.match(value or '', '^(%d+) (%S+) ?(%S*)$')
  till = tonumber(till or 0)
  if now < till and till <= now + RESERVATION then
    return { till = till, heir = heir, waiter = waiter ~= '' and waiter or nil }
  end
end

-- A lease: its grants by place (`at`) and by tenure (`of`, false for one that was removed), its reservations by place.
-- Of a shared lease only the grants that were asked for are loaded, until `fill`.
local loaded, NONE = {}, {}
function Lease.preload(names)
  local missing = {}
  for _, name in ipairs(names) do
    if not loaded[name] then
      missing[#missing + 1], loaded[name] = name, {}
    end
  end
  if #missing == 0 then
    return
  end
  local values = redis.call('HMGET', LEASES, unpack(missing))
  local shared = redis.call('HMGET', SHARED, unpack(missing))
  local reserved = redis.call('HMGET', RESERVED, unpack(missing))
  for i, name in ipairs(missing) do
    local value = values[i]
    local places, generation = string.match(shared[i] or '', '^(%d+) (%d+)$')
    places = tonumber(places or nil)
    local s = { name = name, at = {}, of = {}, reserved = NONE, places = 1, is_full = true, held = 0 }
    if value == '*' and not places then
      foreign_lease()
    elseif places and (not value or value == '*') then
      s.places, s.generation, s.key, s.is_full = places, generation, holders_key(name), false
      s.held = value and redis.call('HLEN', s.key) or 0
    elseif value then
      local row = parse_grant(value)
      row.tenure, row.place, row.places, row.generation = row.first, 0, 1, row.token
      s.at[0], s.of[row.tenure], s.held = row, row, 1
    end
    local reservation = not s.key and reserved[i] and parse_reservation(reserved[i])
    if reservation then
      s.reserved = { [0] = reservation }
    end
    loaded[name] = s
  end
end

function Lease.load(name)
  Lease.preload({ name })
  return loaded[name]
end

local function add_shared(s, tenure, value)
  local row = parse_grant(value)
  local place, places, generation = string.match(row.first, '^(%d+)/(%d+)/(%d+)$')
  if not place then
    foreign_lease()
  end
  row.tenure, row.place, row.places, row.generation = tenure, tonumber(place), tonumber(places), generation
  s.at[row.place], s.of[tenure] = row, row
end

-- The grant of a tenure.
function Lease.row_of(s, tenure)
  if s.of[tenure] == nil and not s.is_full then
    local value = s.held > 0 and redis.call('HGET', s.key, tenure)
    if value then
      add_shared(s, tenure, value)
    else
      s.of[tenure] = false
    end
  end
  return s.of[tenure] or nil
end

local function reserved_field(s, place)
  return s.key and s.name .. '/' .. text(place) or s.name
end

local function load_reservations(s)
  if redis.call('HLEN', RESERVED) == 0 then
    return
  end
  local fields = {}
  s.reserved = s.reserved == NONE and {} or s.reserved
  for place = 0, s.places - 1 do
    fields[place + 1] = reserved_field(s, place)
  end
  for i, value in ipairs(redis.call('HMGET', RESERVED, unpack(fields))) do
    if s.reserved[i - 1] == nil then
      s.reserved[i - 1] = parse_reservation(value)
    end
  end
end

-- The stored entries of tenures that were read together; false for a tenure that is not current.
local lives = {}

-- Loads all grants and reservations.
function Lease.fill(s)
  if s.is_full then
    return
  end
  s.is_full = true
  local found, tenures = s.held > 0 and redis.call('HGETALL', s.key) or {}, {}
  for i = 1, #found, 2 do
    if s.of[found[i]] == nil then
      add_shared(s, found[i], found[i + 1])
    end
    tenures[#tenures + 1] = found[i]
  end
  for i, row in ipairs(#tenures > 0 and redis.call('HMGET', ALIVE, unpack(tenures)) or {}) do
    lives[tenures[i]] = row
  end
  load_reservations(s)
end

-- The entry of a current tenure. Ends one that is past its end.
function Lease.current(tenure)
  if ended_now[tenure] then
    return nil
  end
  if lives[tenure] == nil then
    lives[tenure] = redis.call('HGET', ALIVE, tenure)
  end
  local m = lives[tenure] and unpack_tenure(term_of(tenure), lives[tenure]) or nil
  if m and now >= end_of(m) then
    finish(member_of(tenure), m, 'lapsed')
    return nil
  end
  return m
end

-- How long until the place of a grant is free if the holder sends no more beats.
function Lease.wait_for(row)
  local wait = Lease.waits[row.tenure]
  if not wait then
    wait = free_in(row.tenure, Lease.current(row.tenure))
    Lease.waits[row.tenure] = wait
  end
  return row.limit > 0 and math.min(wait, math.max(0, row.limit - now)) or wait
end

-- Adds an event about a grant, with more fields. Returns it, for fields that are not always there.
function Lease.tell(kind, s, row, ...)
  local told = { 'kind', kind, 'at', NOW, 'tenure', row.tenure, 'lease', s.name, 'token', row.token, ... }
  if row.places > 1 then
    told[#told + 1], told[#told + 2] = 'place', text(row.place)
  end
  news[#news + 1] = told
  return told
end

-- Writes a grant.
function Lease.save(s, row)
  if s.key then
    plan('HSET', s.key, row.tenure, grant_text(row))
  else
    plan('HSET', LEASES, s.name, grant_text(row))
  end
end

-- A grant in the index by limit: in the order of leases and places.
local function limit_field(s, row)
  return s.name .. ' ' .. string.format('%04d', row.place)
end

function Lease.index_limit(s, row)
  plan('ZADD', LIMITS, text(row.limit), limit_field(s, row))
end

-- Removes a grant; with `replaced`, another grant of its place follows.
function Lease.drop(s, row, replaced)
  s.at[row.place], s.of[row.tenure] = nil, false
  s.held, s.changed = s.held - 1, true
  plan('SREM', leased_key(row.tenure), s.name)
  if s.key then
    plan('HDEL', s.key, row.tenure)
    if s.held > 0 then
      plan('SREM', MORE, s.name .. '/' .. text(s.held))
    end
  end
  if s.held == 0 and not replaced then
    plan('HDEL', LEASES, s.name)
  end
  Lease.wake(s.name)
  if row.revision > 0 then
    plan('SREM', Lease.revoked_key(row.tenure), s.name)
    plan('ZREM', LIMITS, limit_field(s, row))
  end
end

-- Writes the number of places and the generation of a shared lease. It has none while no place is taken.
local function save_places(s)
  plan('HSET', SHARED, s.name, text(s.places) .. ' ' .. s.generation)
end

-- Adds a grant of a place to a tenure without one.
function Lease.add(s, place, tenure, token, request)
  s.generation = s.places > 1 and s.generation or token
  local row = { tenure = tenure, place = place, places = s.places, token = token, generation = s.generation,
    request = request, revision = 0, limit = 0 }
  row.first = s.key and text(place) .. '/' .. text(s.places) .. '/' .. s.generation or tenure
  if s.key then
    save_places(s)
    if s.held == 0 then
      plan('HSET', LEASES, s.name, '*')
    else
      plan('SADD', MORE, s.name .. '/' .. text(s.held))
    end
  end
  s.at[place], s.of[tenure] = row, row
  s.held, s.changed = s.held + 1, true
  plan('SADD', leased_key(tenure), s.name)
  Lease.save(s, row)
  return row
end

-- Reserves a place, or removes the reservation.
function Lease.reserve(s, place, till, heir, waiter)
  local field = reserved_field(s, place)
  s.reserved = s.reserved == NONE and {} or s.reserved
  s.reserved[place], s.changed = till and { till = till, heir = heir, waiter = waiter } or false, true
  if till then
    plan('HSET', RESERVED, field, text(till) .. ' ' .. heir .. (waiter and ' ' .. waiter or ''))
    plan('ZADD', RESERVATIONS, text(till), field)
    if s.key then
      s.generation = s.generation or text(next_number())
      save_places(s)
    end
  else
    plan('HDEL', RESERVED, field)
    plan('ZREM', RESERVATIONS, field)
    Lease.wake(s.name)
  end
end

-- Sets the number of places of a lease of which none is taken. Grants of ended tenures may be left for the janitor.
function Lease.set_places(s, places)
  if s.places == places then
    return
  end
  Lease.fill(s)
  s.places, s.reserved = places, NONE
  if s.key then
    return
  end
  s.key = holders_key(s.name)
  for tenure, row in pairs(s.of) do
    if row then
      row.first = '0/1/' .. row.token
      plan('HSET', LEASES, s.name, '*')
      Lease.save(s, row)
    end
  end
end

-- Frees a place whose holder has noticed that an operator released it, or can no longer act under it.
function Lease.free_revoked(s, row)
  Lease.drop(s, row)
  Lease.tell('lease_released', s, row, 'reason', 'revoked')
  lose(row.tenure)
end

-- For how long a place is reserved: until the reservation ends, or before that the tenure of its member. A waiter that
-- ends leaves its place itself.
local heirs = {}
local function reserved_for(reservation)
  local heir, left = reservation.heir, reservation.till - now
  if reservation.waiter then
    return left
  end
  if heirs[heir] == nil then
    heirs[heir] = load_member(heir) or false
  end
  local m = Lease.begun[heir] or heirs[heir]
  if not m or ended_now[heir .. '@' .. text(m.term)] then
    return 0
  end
  return math.max(0, math.min(left, end_of(m) - now))
end

-- Drops reservations for members without a living tenure: they do not come back when such a member joins again.
local function drop_reservations(s)
  for place = 0, s.places - 1 do
    local reservation = s.reserved[place]
    if reservation and reserved_for(reservation) <= 0 then
      Lease.reserve(s, place)
    end
  end
end

-- Ends the holders of a lease that are past their end, frees what an operator released long enough ago, and drops
-- reservations that are over.
function Lease.refresh(s)
  Lease.fill(s)
  local rows = {}
  for _, row in pairs(s.at) do
    rows[#rows + 1] = row
  end
  table.sort(rows, function(a, b)
    return a.place < b.place
  end)
  for _, row in ipairs(rows) do
    Lease.current(row.tenure)
    if row.limit > 0 and row.limit <= now then
      Lease.free_revoked(s, row)
    end
  end
  drop_reservations(s)
end

-- What takes a place: a grant and how long it does, or a running reservation.
function Lease.taken(s, place)
  local row, reservation = s.at[place], s.reserved[place]
  local wait = row and Lease.wait_for(row) or 0
  if wait > 0 then
    return wait, row
  end
  local left = reservation and reserved_for(reservation) or 0
  if left > 0 then
    return left, nil, reservation
  end
end

-- Looks at all places. Returns how many are taken; the place reserved for a member, or the first that is not taken; and
-- whether it is reserved; and the taken place that is free first. While none is taken, a grant begins a generation.
function Lease.look(s, member, places)
  Lease.fill(s)
  local count, free, reserved, first = 0, nil, nil, nil
  for place = 0, math.max(s.places, places) - 1 do
    local wait, row, reservation = Lease.taken(s, place)
    if not wait then
      free = free or place < places and place or nil
    else
      count = count + 1
      if reservation and reservation.heir == member and not reservation.waiter then
        reserved = reserved or place
      end
      if not first or wait < first.wait then
        first = { wait = wait, row = row, reservation = reservation }
      end
    end
  end
  s.generation = count > 0 and s.generation or nil
  return count, reserved or free, reserved ~= nil, first
end

-- Removes the number of places of a shared lease without a grant or a running reservation.
local function forget_places(s)
  load_reservations(s)
  for _, reservation in pairs(s.reserved) do
    if reservation then
      return
    end
  end
  plan('HDEL', SHARED, s.name)
end

-- Runs after the other decisions of a step.
function Lease.finish()
  Lease.serve_waiting()
  for _, s in pairs(loaded) do
    if s.key and s.held == 0 and s.changed then
      forget_places(s)
    end
  end
end

-- Drops reservations that are over.
function Lease.forget_reservations(limit)
  local over = redis.call('ZRANGEBYSCORE', RESERVATIONS, '-inf', NOW, 'LIMIT', 0, limit)
  if #over == 0 then
    return
  end
  plan_whole('HDEL', RESERVED, over)
  plan_whole('ZREM', RESERVATIONS, over)
  for _, field in ipairs(over) do
    local name = string.match(field, '^[^/]*')
    Lease.load(name).changed = true
    Lease.wake(name)
  end
end

-- Frees what an operator released, where the holder's deadline at the release has passed.
function Lease.free_overdue(limit)
  for _, field in ipairs(redis.call('ZRANGEBYSCORE', LIMITS, '-inf', NOW, 'LIMIT', 0, limit)) do
    local name, place = string.match(field, '^(%S+) (%d+)$')
    local s = Lease.load(name)
    Lease.fill(s)
    local row = s.at[tonumber(place)]
    if row and row.revision > 0 then
      Lease.free_revoked(s, row)
    end
    plan('ZREM', LIMITS, field)
  end
end

-- A beat names the revision of the tenure: frees what an operator released, for the holder has noticed.
function Lease.notice(tenure)
  local names = redis.call('SMEMBERS', Lease.revoked_key(tenure))
  table.sort(names, byte_less)
  Lease.preload(names)
  for _, name in ipairs(names) do
    local s = Lease.load(name)
    local row = Lease.row_of(s, tenure)
    if row and row.revision > 0 then
      Lease.free_revoked(s, row)
    end
  end
end
end
