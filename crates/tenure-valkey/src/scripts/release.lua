-- ARGV 8..: the maximum number of holdings, the pass, '1' to lift the brake, '1' to list keys in the events, the
-- default grace.
-- Returns whether more may be releasable, the brake (since, until, lapsed, present) or {}, and for each tenure with
-- anything removed: the tenure, how many leases and connections, and each registry with its count.
local limit, pass, with_keys, default = tonumber(ARGV[8]), ARGV[9], ARGV[11] == '1', tonumber(ARGV[12])

lift_brake(ARGV[10] == '1')
local braked = group.brake_until ~= 0

-- The tenures to visit, in order; both lists are already sorted.
local function releasable(list)
  return redis.call('ZRANGEBYSCORE', list, '-inf', NOW, 'WITHSCORES', 'LIMIT', 0, math.max(1, limit))
end
local visits = {}
for _, list in ipairs(braked and { RELEASING } or { RELEASING, LAPSED }) do
  local found = releasable(list)
  for i = 1, #found, 2 do
    visits[#visits + 1] = { tenure = found[i], at = tonumber(found[i + 1]), list = list }
  end
end
table.sort(visits, function(a, b)
  if a.at ~= b.at then
    return a.at < b.at
  end
  return byte_less(a.tenure, b.tenure)
end)

-- A part of a set, and whether there is more; the whole set when it is small. A step continues where the previous one
-- stopped: the part before is already removed, and scanning it again would cost more with every step. The position is
-- only a hint: any element found there is in the set.
local places, next_places = {}, {}
for key, place in string.gmatch(redis.call('HGET', META, 'places') or '', '(%S+) (%d+)') do
  places[key] = place
end
local function some_of(key, count)
  if redis.call('SCARD', key) <= count then
    return redis.call('SMEMBERS', key), false
  end
  if count <= 0 then
    return {}, true
  end
  local found = redis.call('SSCAN', key, places[key] or '0', 'COUNT', count)
  next_places[#next_places + 1] = key .. ' ' .. found[1]
  local some = found[2]
  for i = #some, count + 1, -1 do
    some[i] = nil
  end
  if #some == 0 then
    some = redis.call('SRANDMEMBER', key, count)
  end
  return some, true
end
local function keep_places()
  if #next_places > 0 then
    plan('HSET', META, 'places', table.concat(next_places, ' '))
  elseif next(places) then
    plan('HDEL', META, 'places')
  end
end

local evict_some
do
-- The holdings by registry: { registry = { keys } }. Adjacent holdings mostly share a registry, so its name is
-- extracted once.
local sub = string.sub
local function by_registry(holdings)
  local sorted, keys, head, length = {}, nil, nil, 0
  for i = 1, #holdings do
    local holding = holdings[i]
    if not head or sub(holding, 1, length) ~= head then
      length = sub(holding, 1, 2) == 'c/' and string.find(holding, '/', 3, true) or 0
      head = length > 0 and sub(holding, 1, length)
      if head then
        local registry = sub(holding, 3, length - 1)
        keys = sorted[registry] or {}
        sorted[registry] = keys
      end
    end
    if head then
      keys[#keys + 1] = sub(holding, length + 1)
    end
  end
  return sorted
end

-- Plans the removal of what a tenure still owns; returns each registry with its count, and the removed keys.
local function evict(tenure, holdings)
  local counts, removed = {}, {}
  for registry, keys in pairs(by_registry(holdings)) do
    local claims, mine, n = PREFIX .. 'claims:' .. registry, {}, 0
    local owners = redis.call('HMGET', claims, unpack(keys))
    for i = 1, #keys do
      if owners[i] == tenure then
        n = n + 1
        mine[n] = keys[i]
        if with_keys then
          removed[#removed + 1] = registry .. '/' .. keys[i]
        end
      end
    end
    if n > 0 then
      plan_whole('HDEL', claims, mine)
      counts[#counts + 1] = { registry, n }
    end
  end
  return counts, removed
end

-- Splits the removed keys into events: each lists at most 4 KiB of keys and counts what it lists. They are sorted, so
-- that they are split as in the other stores; sorting is expensive only for many keys. `<` depends on the server's
-- locale, which can only move a split.
local LISTED = 4096
local function shares_of(counts, removed)
  local keys = table.concat(removed, ' ')
  if #keys < LISTED then
    local shown = {}
    for i, count in ipairs(counts) do
      shown[i] = count[1] .. '=' .. text(count[2])
    end
    return { { counts = table.concat(shown, ' '), keys = #keys > 0 and keys } }
  end
  table.sort(removed)
  local shares, listed, bytes, registries = {}, {}, 0, {}
  local function cut()
    local shown = {}
    for i, registry in ipairs(registries) do
      shown[i] = registry .. '=' .. text(registries[registry])
    end
    shares[#shares + 1] = { counts = table.concat(shown, ' '), keys = table.concat(listed, ' ') }
    listed, bytes, registries = {}, 0, {}
  end
  for _, key in ipairs(removed) do
    if #listed > 0 and bytes + #key + 1 > LISTED then
      cut()
    end
    local registry = string.match(key, '^[^/]*')
    if not registries[registry] then
      registries[#registries + 1], registries[registry] = registry, 0
    end
    registries[registry] = registries[registry] + 1
    listed[#listed + 1], bytes = key, bytes + #key + 1
  end
  cut()
  return shares
end

-- Sorted for readers of the events where that is cheap: by session, then by connection.
local function in_order(connections)
  if #connections <= 16 then
    table.sort(connections, function(a, b)
      if a[1] ~= b[1] then
        return byte_less(a[1], b[1])
      end
      return byte_less(a[2], b[2])
    end)
  end
  return connections
end

-- Plans the removal of connections of a tenure. Returns how many it checked, how many the tenure still owned, those
-- that were the last of their session, and whether there are more.
local function disconnect_some(tenure, room)
  local key = connected_key(tenure)
  local holdings, more = some_of(key, room)
  if #holdings == 0 then
    return 0, 0, {}, more
  end
  plan_whole('SREM', key, holdings)
  local found, removed, last = {}, 0, {}
  for i, holding in ipairs(holdings) do
    local name, connection = string.match(holding, '^([^/]*)/(.*)$')
    found[i] = { name or '', connection or '' }
  end
  for _, holding in ipairs(in_order(found)) do
    local s = load_session(holding[1])
    if s and holder_of(s, holding[2]) == tenure then
      removed = removed + 1
      if disconnect(s, holding[2], default) then
        last[#last + 1] = { s, holding[2] }
      end
    end
  end
  return #holdings, removed, last, more
end

-- Removes claims of a tenure, and when none are left, connections. Writes one event (several when the keys are long),
-- and one for each session that has no connection left. Returns each registry with its count, how many connections it
-- checked and how many it removed, and whether any of either are left.
function evict_some(tenure, holdings, more, room)
  local counts, removed = evict(tenure, holdings)
  if #holdings > 0 then
    plan_whole('SREM', held_key(tenure), holdings)
  end
  local looked, gone, last = 0, 0, {}
  if not more then
    looked, gone, last, more = disconnect_some(tenure, room)
  end
  if #counts == 0 and gone == 0 then
    return counts, looked, gone, more
  end
  local reason = reason_of(tenure) or 'unknown'
  for i, share in ipairs(shares_of(counts, removed)) do
    local about = { 'reason', reason, 'pass', pass, 'counts', share.counts }
    if share.keys then
      about[#about + 1], about[#about + 2] = 'keys', share.keys
    end
    if gone > 0 and i == 1 then
      about[#about + 1], about[#about + 2] = 'connections', text(gone)
    end
    event('evicted', tenure, unpack(about))
  end
  for _, was in ipairs(last) do
    tell_session('session_disconnected', was[1], tenure, was[2], 'reason', reason, 'pass', pass)
  end
  return counts, looked, gone, more
end
end

-- Removes leases of a tenure, one event each, unless its process may still be working. Returns how many it checked, how
-- many it removed, and when to retry if that is later than now.
local function free_some(tenure, room)
  local key = leased_key(tenure)
  if redis.call('SCARD', key) == 0 then
    return 0, 0
  end
  local wait = free_in(tenure)
  if wait > 0 then
    return 0, 0, now + wait
  end
  local leases, removed = some_of(key, room), 0
  if #leases == 0 then
    return 0, 0
  end
  -- Sorted for readers of the events where that is cheap.
  if #leases <= 16 then
    table.sort(leases, byte_less)
  end
  local reason = reason_of(tenure) or 'unknown'
  Lease.preload(leases)
  for _, name in ipairs(leases) do
    local s = Lease.load(name)
    local row = Lease.row_of(s, tenure)
    if row then
      Lease.drop(s, row)
      removed = removed + 1
      Lease.tell('lease_released', s, row, 'reason', reason, 'pass', pass)
    else
      plan('SREM', key, name)
    end
  end
  return #leases, removed
end

-- A single tenure gets the whole limit, and each of several at least a quarter: a large tenure does not block the
-- others. Claims go first, then connections, because leases may have to wait.
local waiting = math.min(math.max(#visits, 1), 4)
local turn, budget, evictions = math.max(1, math.floor(limit / waiting)), limit, {}
-- Each lease is an event of its own and counts as two claims; a connection, most often the last of its session, counts
-- as four.
local dear, dearer = math.min(limit, 100), math.min(limit, 50)
for _, visit in ipairs(visits) do
  if budget == 0 then
    break
  end
  local tenure = visit.tenure
  local holdings, more = some_of(held_key(tenure), math.min(turn, budget))
  budget = budget - #holdings
  local room = turn - #holdings
  local counts, looked, gone, left = evict_some(tenure, holdings, more, math.min(room, budget, dearer))
  budget, room, dearer = budget - looked, room - looked, dearer - looked
  local freed, come_again = 0, nil
  if not left then
    looked, freed, come_again = free_some(tenure, math.min(room, budget, dear))
    budget, dear = budget - looked, dear - looked
  end
  plan_whole('ZADD', visit.list, { 'XX', text(come_again or now), tenure })
  lose(tenure)
  if #counts > 0 or freed > 0 or gone > 0 then
    local eviction = { tenure, freed, gone }
    for _, count in ipairs(counts) do
      eviction[#eviction + 1], eviction[#eviction + 2] = count[1], count[2]
    end
    evictions[#evictions + 1] = eviction
  end
end
keep_places()
flush_sessions()
Lease.finish()
commit()

local more = #releasable(RELEASING) > 0 or (not braked and #releasable(LAPSED) > 0)
local brake = {}
if braked then
  brake = { group.brake_since, group.brake_until, redis.call('ZCARD', LAPSES), count_members() }
end
return { NONCE, now, 'ok', more and 1 or 0, brake, evictions }
