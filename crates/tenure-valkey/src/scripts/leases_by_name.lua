-- ARGV 3..: leases. Returns those that are held: lease, number of places, the reservations that are not past their time
-- (place, the current tenure of its member and its packed value; without a tenure for a waiter), the first waiters (end of the wait, tenure, its packed value when it is current) and the number of the others, and its
-- grants: holder's tenure, the grant as stored, the holder's packed value when it is a current tenure, and how the
-- holder's tenure ended.
local leases = {}
for i = 3, #ARGV do
  leases[i - 2] = ARGV[i]
end

-- All grants met, to be completed together.
local all = {}
local function add_grant(grants, tenure, value)
  grants[#grants + 1] = { tenure, value, '', '' }
  all[#all + 1] = grants[#grants]
end

local function grants_of(lease, value)
  local grants = {}
  if value ~= '*' then
    add_grant(grants, string.match(value, '^%S*'), value)
    return grants
  end
  local found = redis.call('HGETALL', PREFIX .. 'holders:' .. lease)
  for i = 1, #found, 2 do
    add_grant(grants, found[i], found[i + 1])
  end
  return grants
end

-- Adds the state of the holders' tenures, in parts: a call takes only so many arguments.
local PART = 1000
local function complete_grants()
  for from = 1, #all, PART do
    local tenures = {}
    for i = from, math.min(from + PART - 1, #all) do
      tenures[#tenures + 1] = all[i][1]
    end
    local ended = redis.call('HMGET', PREFIX .. 'ended', unpack(tenures))
    for i, packed in ipairs(current_of(tenures)) do
      all[from + i - 1][3], all[from + i - 1][4] = packed or '', ended[i] or ''
    end
  end
end

-- Adds to reservations the tenures of their members.
local function complete_reservations(found)
  local heirs, tenures = {}, {}
  for i, reservation in ipairs(found) do
    heirs[i] = reservation[2]
  end
  for i, term in ipairs(#heirs > 0 and redis.call('HMGET', PREFIX .. 'members', unpack(heirs)) or {}) do
    tenures[i] = term and heirs[i] .. '@' .. text((struct.unpack('<d', term))) or heirs[i]
  end
  for i, packed in ipairs(#heirs > 0 and current_of(tenures) or {}) do
    found[i][2], found[i][3] = found[i][2] ~= '' and tenures[i] or '', packed or ''
  end
  return found
end

-- The reserved places of a lease, by the rule of `lease.lua`.
local LONGEST = 5000000
local is_reserved = #leases > 0 and redis.call('HLEN', PREFIX .. 'reserved') > 0
local function reserved_places(lease, places)
  local fields, found = { lease }, {}
  if not is_reserved then
    return found
  end
  for place = 0, places and places - 1 or -1 do
    fields[place + 1] = lease .. '/' .. place
  end
  for i, value in ipairs(redis.call('HMGET', PREFIX .. 'reserved', unpack(fields))) do
    local till, heir, waiter = string.match(value or '', '^(%d+) (%S+) ?(%S*)$')
    till = tonumber(till or 0)
    if now < till and till <= now + LONGEST then
      found[#found + 1] = { i - 1, waiter == '' and heir or '' }
    end
  end
  return complete_reservations(found)
end

-- The first waiters of a lease, and the number of the others.
local is_waited_for = #leases > 0 and redis.call('HLEN', PREFIX .. 'waits') > 0
local function waiters_of(lease)
  local key = PREFIX .. 'waiting:' .. lease
  local tenures = is_waited_for and redis.call('ZRANGE', key, 0, PART - 1) or {}
  if #tenures == 0 then
    return {}, 0
  end
  local fields, waiters = {}, {}
  for i, tenure in ipairs(tenures) do
    fields[i] = lease .. ' ' .. tenure
  end
  local values = redis.call('HMGET', PREFIX .. 'waits', unpack(fields))
  for i, packed in ipairs(current_of(tenures)) do
    local till = string.match(values[i] or '', '^%d+ %d+ %d+ (%d+) ')
    waiters[i] = { till or '0', tenures[i], packed or '' }
  end
  return waiters, redis.call('ZCARD', key) - #tenures
end

local found = {}
if #leases > 0 then
  local values = redis.call('HMGET', PREFIX .. 'leases', unpack(leases))
  local shared = redis.call('HMGET', PREFIX .. 'shared', unpack(leases))
  for i, value in ipairs(values) do
    if value then
      local places = value == '*' and tonumber((string.match(shared[i], '^%d+'))) or nil
      local waiters, more = waiters_of(leases[i])
      found[#found + 1] = { leases[i], places or 1, reserved_places(leases[i], places), waiters, more,
        grants_of(leases[i], value) }
    end
  end
  complete_grants()
end
return { NONCE, now, 'ok', life(), found }
