-- The prelude of every script that changes a group; `group.lua` and the verb's own text follow it in the same chunk.
--
-- A script decides first and writes last. While it decides it only reads, and queues its writes with `plan` and
-- `event`. `commit` then reads every key (a foreign key type or a migrating slot fails here), writes the tick (full
-- memory fails here), and only then writes the rest. So a refused script has changed nothing.
--
-- KEYS 1..11: meta, the store's marker, members, labels, due, ended, forget, releasing, releasing:lapsed, lapses, events.
-- ARGV 1..7: nonce, not-after, max ttl, brake share, brake floor, brake hold, events kept and their bytes. Times are µs.

local META, MARKER, MEMBERS, LABELS, DUE, ENDED, FORGET, RELEASING, LAPSED, LAPSES, EVENTS = unpack(KEYS, 1, 11)
local NONCE, MAX_TTL = ARGV[1], tonumber(ARGV[3])
local BURST, RESERVATION = 250000, 5000000

local now = clock()
if ARGV[2] ~= '0' and now > tonumber(ARGV[2]) then
  return { NONCE, now, 'late' }
end

-- Numbers are formatted in full: Lua's default format rounds to 14 digits. `%d` costs a third of `%.0f`, where it has
-- 64 bits.
local WHOLE = string.format('%d', 2 ^ 52) == '4503599627370496' and '%d' or '%.0f'
local function text(number)
  return string.format(WHOLE, number)
end
local NOW = text(now)

-- Keys derived from data share the group's hash tag.
local PREFIX = string.sub(META, 1, -5)
local ALIVE = PREFIX .. 'alive'
local LEASES, RESERVED, RESERVATIONS = PREFIX .. 'leases', PREFIX .. 'reserved', PREFIX .. 'reservations'
local function held_key(tenure)
  return PREFIX .. 'held:' .. tenure
end
local function leased_key(tenure)
  return PREFIX .. 'leased:' .. tenure
end
local function connected_key(tenure)
  return PREFIX .. 'connected:' .. tenure
end
local GONE = PREFIX .. 'gone'
local function unreleased_key(member)
  return PREFIX .. 'unreleased:' .. member
end

local function member_of(tenure)
  return string.match(tenure, '^([^@]+)@')
end
local function term_of(tenure)
  return tonumber(string.match(tenure, '@(%d+)$'))
end

-- Lua's string comparison depends on the server's locale.
local function byte_less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

-- The planned writes, in order. Writes with the same command on the same key are merged into one call, unless another
-- command on that key comes between them.
local plans, last_plan, news, emptied = {}, {}, {}, {}
local touched = { [META] = true }
local function plan(command, key, first, second)
  local open = last_plan[key]
  if not open or open[1] ~= command or open.n > 2000 then
    open = { command, key, n = 2 }
    plans[#plans + 1], last_plan[key] = open, open
  end
  local n = open.n
  open[n + 1], open[n + 2] = first, second
  open.n = n + (second and 2 or first and 1 or 0)
end
-- A call that is not merged, with its arguments in a list, which is not copied.
local function plan_whole(command, key, list)
  plans[#plans + 1] = { command, key, list = list }
  last_plan[key] = nil
end

local function event(kind, tenure, ...)
  if tenure then
    news[#news + 1] = { 'kind', kind, 'at', NOW, 'tenure', tenure, ... }
  else
    news[#news + 1] = { 'kind', kind, 'at', NOW, ... }
  end
end

local stored = redis.call('HMGET', META, 'state', 'seq', 'events', 'roster', 'refused', 'pulse')
local group = { seq = tonumber(stored[2] or 0), events = tonumber(stored[3] or 0), cause = 0 }
group.born, group.tick, group.resumed, group.min_ttl, group.max_ttl, group.unsettled_until, group.cause, group.grants,
  group.brake_since, group.brake_until = struct.unpack(STATE, stored[1] or string.rep('\0', 80))

group.pulse, group.announced = Gap.known(stored[6])
-- The step before this one.
group.last_tick = group.tick

-- The roster state of the group; nil without a roster. `commit` writes it when it is marked as stale.
local roster = unpack_roster(stored[4])
