-- The prelude of every read-only script. KEYS 1 is the group's meta. ARGV 1, 2: nonce, not-after.
local NONCE, META = ARGV[1], KEYS[1]
local PREFIX = string.sub(META, 1, -5)
local now = clock()

local function text(number)
  return string.format('%.0f', number)
end

-- The state that decides who is alive: when the store last resumed, with a gap that no step has met yet; the same as it
-- is recorded; and until when beats were refused. Empty when there is no group.
local function life()
  local found = redis.call('HMGET', META, 'state', 'refused', 'pulse')
  if not found[1] then
    return { false, false, false }
  end
  local _, tick, resumed, min_ttl = struct.unpack(STATE, found[1])
  local _, refused_until = unpack_refusal(found[2])
  local _, at = Gap.look(META, now, tick, resumed, min_ttl, (Gap.known(found[3])))
  return { at and Gap.resume(resumed, at, now) or resumed, resumed, refused_until }
end

-- How much a tenure holds: claims, leases and connections.
local function holds(tenure)
  return redis.call('SCARD', PREFIX .. 'held:' .. tenure), redis.call('SCARD', PREFIX .. 'leased:' .. tenure),
    redis.call('SCARD', PREFIX .. 'connected:' .. tenure)
end

-- The packed values of tenures: term, deadline, ttl and revision; false for a tenure that is not its member's current
-- one.
local function current_of(tenures)
  local rows = redis.call('HMGET', PREFIX .. 'alive', unpack(tenures))
  for i, tenure in ipairs(tenures) do
    local term = rows[i] and tonumber(string.match(tenure, '@(%d+)$'))
    rows[i] = term and struct.pack('<dddd', term, unpack_life(rows[i])) or false
  end
  return rows
end

-- The existing members with these names: name, packed value, labels, and how many claims, leases and connections it
-- holds.
local function members_of(names)
  local found = {}
  if #names == 0 then
    return found
  end
  local terms = redis.call('HMGET', PREFIX .. 'members', unpack(names))
  local labels = redis.call('HMGET', PREFIX .. 'labels', unpack(names))
  local tenures = {}
  for i, name in ipairs(names) do
    tenures[i] = terms[i] and name .. '@' .. text((struct.unpack('<d', terms[i]))) or name
  end
  local packed = current_of(tenures)
  for i, name in ipairs(names) do
    if packed[i] then
      found[#found + 1] = { name, packed[i], labels[i], holds(tenures[i]) }
    end
  end
  return found
end
