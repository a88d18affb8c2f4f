-- ARGV 8..: at most how many holdings, the pass, '1' to lift the brake, '1' to list keys in the events.
-- Answers whether more may be releasable, the brake (since, until, lapsed, present) or {}, and for each tenure with
-- anything removed: the tenure, and each registry with its count.
local limit, pass, with_keys = tonumber(ARGV[8]), ARGV[9], ARGV[11] == '1'

lift_brake(ARGV[10] == '1')
local braked = group.brake_until ~= 0

-- Who is to be visited, in order; both lists are in order already.
local function releasable(list)
  return redis.call('ZRANGEBYSCORE', list, '-inf', NOW, 'WITHSCORES', 'LIMIT', 0, math.max(1, limit))
end
-- Lua's own comparison of strings goes by the server's locale.
local function byte_less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
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

-- Some of what a tenure holds: all of it when that is not too much.
local function some_of(tenure, count)
  local key = held_key(tenure)
  if redis.call('SCARD', key) <= count then
    return redis.call('SMEMBERS', key)
  end
  return redis.call('SRANDMEMBER', key, count)
end

-- The holdings by registry: { registry = { keys } }.
local function by_registry(holdings)
  local sorted = {}
  for _, holding in ipairs(holdings) do
    local registry, key = string.match(holding, '^c/([^/]+)/([^/]+)$')
    if registry then
      sorted[registry] = sorted[registry] or {}
      table.insert(sorted[registry], key)
    end
  end
  return sorted
end

-- Plans the removal of what a tenure still owns; answers each registry with its count, and what was removed.
local function evict(tenure, holdings)
  local counts, removed = {}, {}
  for registry, keys in pairs(by_registry(holdings)) do
    local claims, mine = PREFIX .. 'claims:' .. registry, {}
    for i, owner in ipairs(redis.call('HMGET', claims, unpack(keys))) do
      if owner == tenure then
        mine[#mine + 1] = keys[i]
        removed[#removed + 1] = registry .. '/' .. keys[i]
      end
    end
    if #mine > 0 then
      plan_whole('HDEL', claims, unpack(mine))
      counts[#counts + 1] = { registry, #mine }
    end
  end
  return counts, removed
end

-- All it may for one that waits alone, and never less than a quarter: a huge tenure blocks nobody.
local waiting = math.min(math.max(#visits, 1), 4)
local turn, budget, evictions = math.max(1, math.floor(limit / waiting)), limit, {}
for _, visit in ipairs(visits) do
  if budget == 0 then
    break
  end
  local tenure = visit.tenure
  local holdings = some_of(tenure, math.min(turn, budget))
  budget = budget - #holdings
  local counts, removed = evict(tenure, holdings)
  if #holdings > 0 then
    plan_whole('SREM', held_key(tenure), unpack(holdings))
  end
  plan_whole('ZADD', visit.list, 'XX', NOW, tenure)
  lose(tenure)
  if #removed > 0 then
    local eviction, shown = { tenure }, {}
    for _, count in ipairs(counts) do
      eviction[#eviction + 1], eviction[#eviction + 2] = count[1], count[2]
      shown[#shown + 1] = count[1] .. '=' .. text(count[2])
    end
    evictions[#evictions + 1] = eviction
    local fields = { 'reason', reason_of(tenure) or 'unknown', 'pass', pass, 'counts', table.concat(shown, ' ') }
    if with_keys then
      fields[7], fields[8] = 'keys', table.concat(removed, ' ')
    end
    event('evicted', tenure, unpack(fields))
  end
end
commit()

local more = #releasable(RELEASING) > 0 or (not braked and #releasable(LAPSED) > 0)
local brake = {}
if braked then
  brake = { group.brake_since, group.brake_until, redis.call('ZCARD', LAPSES), count_members() }
end
return { NONCE, now, 'ok', more and 1 or 0, brake, evictions }
