-- Waiting for leases. Part of every script that frees or grants leases; follows `lease.lua`.
--
-- WAITS has, by 'lease tenure': 'number request places until node', and 'place till' while a place is reserved for the
-- waiter. The zset of a lease orders its waiters by number: first come, first served. WAKE has, by lease with waiters, the
-- earliest time at which a place may be free; lazy, whoever looks finds the true time. NODES has when each process last
-- confirmed its waiters. PASSED has where the next step continues to look for a waiter.
do
local WAITS, WAITS_UNTIL, WAKE = PREFIX .. 'waits', PREFIX .. 'waits:until', PREFIX .. 'wake'
local NODES, PASSED = PREFIX .. 'nodes', PREFIX .. 'passed'
-- How many waiters a step looks at, how long a place is reserved for one, how long a node may be silent, how soon a
-- lease is looked at again when all nodes were silent, and how many waiters there may be.
local SERVED, TURN, SILENCE, AGAIN = 200, 1000000, 2000000, 500000
local MOST_OF_LEASE, MOST_OF_GROUP = 10000, 20000

local function waiting_key(name)
  return PREFIX .. 'waiting:' .. name
end
local function waited_key(tenure)
  return PREFIX .. 'waited:' .. tenure
end

local waiters
-- The number of waiters of the group, without changes of this step.
local function count_waiters()
  if not waiters then
    waiters = redis.call('HLEN', WAITS)
  end
  return waiters
end

local function parse_waiter(name, tenure, value)
  local number, request, places, till, node, place, reserved =
    string.match(value, '^(%d+) (%d+) (%d+) (%d+) (%S+) ?(%d*) ?(%d*)$')
  if not number then
    error({ err = 'ERR user_script: a waiter in an unknown format' })
  end
  return { name = name, tenure = tenure, number = tonumber(number), request = request, places = tonumber(places),
    till = tonumber(till), node = node, place = tonumber(place), reserved = tonumber(reserved) }
end

local function save_waiter(w)
  local value = text(w.number) .. ' ' .. w.request .. ' ' .. text(w.places) .. ' ' .. text(w.till) .. ' ' .. w.node
  if w.place then
    value = value .. ' ' .. text(w.place) .. ' ' .. text(w.reserved)
  end
  plan('HSET', WAITS, w.name .. ' ' .. w.tenure, value)
end

-- The waiters that this step has read or changed, by lease and tenure; false for one that was removed.
local known = {}
function Lease.waiter_of(name, tenure)
  local field = name .. ' ' .. tenure
  if known[field] == nil then
    local value = count_waiters() > 0 and redis.call('HGET', WAITS, field)
    known[field] = value and parse_waiter(name, tenure, value) or false
  end
  return known[field] or nil
end

-- Removes a waiter, and the reservation of its place.
function Lease.leave(w)
  local field = w.name .. ' ' .. w.tenure
  known[field] = false
  plan('HDEL', WAITS, field)
  plan('ZREM', WAITS_UNTIL, field)
  plan('ZREM', waiting_key(w.name), w.tenure)
  plan('SREM', waited_key(w.tenure), w.name)
  local s = w.place and Lease.load(w.name)
  local reservation = s and (Lease.fill(s) or s.reserved[w.place])
  if reservation and reservation.waiter == w.tenure then
    Lease.reserve(s, w.place)
  end
  Lease.wake(w.name)
end

-- Notes that a lease may be free now. Nothing without waiters.
local woken = {}
function Lease.wake(name)
  if count_waiters() > 0 and not woken[name] and redis.call('ZSCORE', WAKE, name) then
    woken[name] = true
    woken[#woken + 1] = name
  end
end

-- The leases of a tenure may be free earlier than known: it ended, or has a shorter ttl.
function Lease.wake_of(tenure)
  if count_waiters() == 0 then
    return
  end
  if redis.call('SCARD', leased_key(tenure)) <= SERVED then
    for _, name in ipairs(redis.call('SMEMBERS', leased_key(tenure))) do
      Lease.wake(name)
    end
    return
  end
  for _, name in ipairs(redis.call('ZRANGE', WAKE, 0, SERVED - 1)) do
    if redis.call('SISMEMBER', leased_key(tenure), name) == 1 then
      Lease.wake(name)
    end
  end
end

-- All leases may be free: this step serves the first, and the next steps find the others due. Only an operator causes it,
-- so it may look at all of them.
function Lease.wake_all()
  for i, name in ipairs(redis.call('ZRANGE', WAKE, 0, -1)) do
    plan('ZADD', WAKE, '0', name)
    if i <= SERVED then
      Lease.wake(name)
    end
  end
end

-- What was handed off to a member may be free: its tenure ended. If much is handed off, the leases that are due first
-- are looked at; the others are when they are due.
local handed
local function wake_handed(member)
  if not handed then
    handed = {}
    local few = redis.call('HLEN', RESERVED) <= SERVED
    local found = few and redis.call('HGETALL', RESERVED) or {}
    for i = 1, #found, 2 do
      local heir = string.match(found[i + 1], '^%d+ (%S+)$')
      if heir then
        handed[heir] = handed[heir] or {}
        table.insert(handed[heir], string.match(found[i], '^[^/]*'))
      end
    end
    for _, name in ipairs(few and {} or redis.call('ZRANGE', WAKE, 0, SERVED - 1)) do
      Lease.wake(name)
    end
  end
  for _, name in ipairs(handed[member] or {}) do
    Lease.wake(name)
  end
end

-- A tenure ended: it waits no longer. Waiters above the limit are removed when their turn comes or their wait is over.
function Lease.note_end(tenure)
  if count_waiters() == 0 then
    return
  end
  Lease.wake_of(tenure)
  wake_handed(member_of(tenure))
  local names = redis.call('SMEMBERS', waited_key(tenure))
  for i = 1, math.min(#names, SERVED) do
    local w = Lease.waiter_of(names[i], tenure)
    if w then
      Lease.leave(w)
    end
  end
end

-- Whether the process of a waiter has confirmed it.
local confirmed = {}
local function is_confirmed(node)
  if confirmed[node] == nil then
    local at = redis.call('ZSCORE', NODES, node)
    confirmed[node] = at and now - tonumber(at) <= SILENCE or false
  end
  return confirmed[node]
end

-- Notes that a process is at work.
function Lease.confirm(node)
  confirmed[node] = true
  plan('ZADD', NODES, NOW, node)
end

-- Forgets processes that have been silent for a minute.
function Lease.forget_nodes()
  for _, node in ipairs(redis.call('ZRANGEBYSCORE', NODES, '-inf', text(now - 60000000), 'LIMIT', 0, SERVED)) do
    plan('ZREM', NODES, node)
  end
end

-- The waiters of a lease after a number, in order, in parts.
local PART = 50
local function each_waiter(name, from)
  local part, at = {}, 0
  return function()
    at = at + 1
    if at > #part and (at == 1 or #part == PART) then
      local found = redis.call('ZRANGEBYSCORE', waiting_key(name), '(' .. text(from), '+inf', 'WITHSCORES', 'LIMIT', 0, PART)
      local fields = {}
      part, at = {}, 1
      for i = 1, #found, 2 do
        part[#part + 1], from = { tenure = found[i], number = tonumber(found[i + 1]) }, tonumber(found[i + 1])
        fields[#part] = name .. ' ' .. found[i]
      end
      for i, value in ipairs(#part > 0 and redis.call('HMGET', WAITS, unpack(fields)) or {}) do
        if known[fields[i]] == nil then
          known[fields[i]] = value and parse_waiter(name, part[i].tenure, value) or false
        end
        part[i] = known[fields[i]] or { removed = true, number = part[i].number }
      end
    end
    return part[at]
  end
end

local function is_living(w)
  return now < w.till and Lease.current(w.tenure) ~= nil
end

-- The first waiter that can be served.
local function first_waiter(s)
  local looked = 0
  for w in each_waiter(s.name, 0) do
    looked = looked + 1
    if not w.removed and not w.place and is_living(w) and is_confirmed(w.node) then
      return w
    elseif looked == 2 * SERVED then
      -- A step removes at most half of them.
      return nil
    end
  end
end

local messages = {}
local function tell(w, more)
  local message = string.sub(PREFIX, 9, -3) .. ' ' .. w.name .. ' ' .. w.tenure .. ' ' .. w.request .. more
  messages[#messages + 1] = { 'tenure:turns:' .. w.node, message }
end

-- Tells the process of a waiter that its turn has come.
function Lease.tell_turn(w)
  tell(w, '')
end

-- Tells the process of a waiter that a later request of the tenure has its place, or the lease.
function Lease.tell_replaced(w)
  tell(w, ' replaced')
end

-- Reserves a place for a waiter, and tells its process.
local function give_turn(s, w, place)
  Lease.set_places(s, w.places)
  w.place, w.reserved = place, now + TURN
  Lease.reserve(s, place, w.reserved, member_of(w.tenure), w.tenure)
  save_waiter(w)
  Lease.tell_turn(w)
end

local function set_wake(name, at)
  plan('ZADD', WAKE, text(at), name)
end

-- Looks at one waiter. Returns 'gone', 'turn' while a place is reserved for it, 'silent' when its node is, or 'wait'
-- and how long until a place may be free.
local function look_at(s, w)
  if w.removed then
    return 'gone'
  elseif w.place and now < w.reserved and w.reserved <= now + TURN then
    return 'turn'
  elseif w.place or not is_living(w) then
    -- Its process did not take the place, or it waits no longer.
    Lease.leave(w)
    return 'gone'
  elseif not is_confirmed(w.node) then
    return 'silent'
  end
  local _, place, _, first = Lease.look(s, member_of(w.tenure), w.places)
  if not place or first and s.places ~= w.places then
    -- While its process was silent, others may have taken the lease with another number of places.
    return 'wait', first.wait
  end
  give_turn(s, w, place)
  return 'turn'
end

-- Serves the first waiters of a lease, as far as places are free, and notes when the next one may be. Returns how many
-- waiters it looked at, and the last of them if there are more.
function Lease.serve(s, most)
  Lease.refresh(s)
  if now < group.unsettled_until then
    set_wake(s.name, group.unsettled_until)
    return 1
  end
  local from = tonumber(redis.call('HGET', PASSED, s.name) or 0)
  local looked, last, wake = 0, nil, from > 0 and now + AGAIN or nil
  local function sooner(at)
    wake = math.min(wake or at, at)
  end
  for w in each_waiter(s.name, from) do
    if looked == most then
      plan('HSET', PASSED, s.name, text(from))
      set_wake(s.name, now)
      return looked, last
    end
    looked, from, last = looked + 1, w.number, not w.removed and w or last
    local state, wait = look_at(s, w)
    if state == 'turn' then
      sooner(w.reserved)
    elseif state == 'silent' then
      sooner(now + AGAIN)
    elseif state == 'wait' then
      sooner(now + wait)
      break
    end
  end
  plan('HDEL', PASSED, s.name)
  if wake then
    set_wake(s.name, wake)
  else
    plan('ZREM', WAKE, s.name)
  end
  return math.max(looked, 1)
end

-- Serves a lease, and returns the first waiter that can be served and has not been. If there are too many to look at in
-- one step, it returns the last one looked at: none may be overtaken.
function Lease.serve_first(s)
  if count_waiters() == 0 or not redis.call('ZSCORE', WAKE, s.name) then
    return nil
  end
  local _, last = Lease.serve(s, SERVED)
  return first_waiter(s) or last
end

-- Serves the leases that may be free. Part of every step that can free one.
function Lease.serve_waiting()
  if count_waiters() == 0 then
    return
  end
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', WAKE, '-inf', NOW, 'LIMIT', 0, SERVED)) do
    if not woken[name] then
      woken[name] = true
      woken[#woken + 1] = name
    end
  end
  local left, served = SERVED, {}
  for _, name in ipairs(woken) do
    if left <= 0 then
      set_wake(name, now)
    else
      left = left - Lease.serve(Lease.load(name), left)
    end
  end
end

-- Removes waiters whose wait is over.
function Lease.forget_waiters(limit)
  if count_waiters() == 0 then
    return
  end
  for _, field in ipairs(redis.call('ZRANGEBYSCORE', WAITS_UNTIL, '-inf', NOW, 'LIMIT', 0, limit)) do
    local name, tenure = string.match(field, '^(%S+) (%S+)$')
    local w = Lease.waiter_of(name, tenure)
    if w then
      Lease.leave(w)
    else
      plan('ZREM', WAITS_UNTIL, field)
    end
  end
end

-- Joins the queue of a lease, or keeps the place with the number and the end of this request. Returns the result.
function Lease.join(s, tenure, places, request, node, within, wait)
  local w = Lease.waiter_of(s.name, tenure)
  local key = waiting_key(s.name)
  if not w then
    local of_lease = redis.call('ZCARD', key)
    if count_waiters() >= MOST_OF_GROUP or of_lease >= MOST_OF_LEASE then
      return 'f' .. text(count_waiters() >= MOST_OF_GROUP and count_waiters() or of_lease)
    end
    w = { name = s.name, tenure = tenure, number = next_number() }
    plan('ZADD', key, text(w.number), tenure)
    plan('SADD', waited_key(tenure), s.name)
    known[s.name .. ' ' .. tenure] = w
  end
  if w.node and w.node ~= node then
    Lease.tell_replaced(w)
  end
  w.request, w.places, w.node, w.till, w.place, w.reserved = request, places, node, now + within, nil, nil
  save_waiter(w)
  plan('ZADD', WAITS_UNTIL, text(w.till), s.name .. ' ' .. tenure)
  local before = tonumber(redis.call('ZSCORE', WAKE, s.name) or nil)
  if not before or now + wait < before then
    set_wake(s.name, now + wait)
  end
  local ahead = redis.call('ZCOUNT', key, '-inf', '(' .. text(w.number))
  return 'w' .. text(ahead) .. ' ' .. text(w.till)
end

-- Sends what the processes of waiters must know; runs after the last write. Without the right to a
-- channel nothing is sent; the process asks again before the reservation ends.
function Lease.publish()
  for _, message in ipairs(messages) do
    if not redis.acl_check_cmd or redis.acl_check_cmd('PUBLISH', unpack(message)) then
      redis.call('PUBLISH', unpack(message))
    end
  end
end
end
