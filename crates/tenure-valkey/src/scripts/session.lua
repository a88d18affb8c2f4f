-- Shared by every script that changes sessions; follows `lib.lua`.
--
-- A session is a hash: `m` is its record (six doubles), `a` its alias, `d:<field>` each field of its data, as JSON. Its
-- connections are another: connection -> 'tenure epoch'. A session without connections is away: its record says when its
-- grace is over and how long it was, and it is in the index of the disconnected, which is lazy as that of the members is.

local SESSIONS, AWAY, ALIASES = PREFIX .. 'sessions', PREFIX .. 'disconnected', PREFIX .. 'aliases'
-- Epoch, when made, when its data changed, its own grace or 0; when its grace is over or 0, and the grace.
local RECORD, RECORD_SIZE = '<dddddd', 48

local function session_key(name)
  return PREFIX .. 'sess:' .. name
end
local function conns_key(name)
  return PREFIX .. 'conns:' .. name
end

-- A record that is none is nil: whole numbers below 2^53, and an epoch.
local function unpack_record(packed)
  if not packed or #packed ~= RECORD_SIZE then
    return nil
  end
  local s = { conns = {} }
  s.epoch, s.created, s.updated, s.grace, s.reap_at, s.granted = struct.unpack(RECORD, packed)
  for _, number in ipairs({ s.epoch, s.created, s.updated, s.grace, s.reap_at, s.granted }) do
    if not (number >= 0 and number <= 9007199254740991 and number % 1 == 0) then
      return nil
    end
  end
  return s.epoch > 0 and s or nil
end

-- What a key of a foreign type answers is nothing of ours. Any other refusal ends the step: a key that is on its way to
-- another node must not read as one that is not there.
local function ours_or_foreign(answer)
  if type(answer) == 'table' and answer.err and not string.find(answer.err, 'WRONGTYPE', 1, true) then
    error(answer)
  end
  return answer
end

-- Sessions by name, as they are with all that is planned; false for none. A key of a foreign type is no session: whoever
-- writes to it is refused by `commit`.
local known, changed = {}, {}
local function load_session(name)
  local s = known[name]
  if s == nil then
    local key = session_key(name)
    local row = ours_or_foreign(redis.pcall('HMGET', key, 'm', 'a'))
    if row.err then
      s = false
    else
      touched[key] = true
      s = unpack_record(row[1]) or false
      if s then
        s.name, s.alias = name, row[2]
      end
    end
    known[name] = s
  end
  return s
end

-- How many connections a session has. What cannot be counted is not none.
local function connections(s)
  if not s.count then
    local key = conns_key(s.name)
    local count = ours_or_foreign(redis.pcall('HLEN', key))
    if type(count) == 'number' then
      touched[key] = true
      s.count = count
    else
      s.count = 1
    end
  end
  return s.count
end

-- The tenure that has a connection, and the epoch of its attach; nil for none.
local function holder_of(s, connection)
  local value = s.conns[connection]
  if value == nil then
    local found = ours_or_foreign(redis.pcall('HGET', conns_key(s.name), connection))
    value = type(found) == 'string' and found or false
    s.conns[connection] = value
  end
  if value then
    return string.match(value, '^(%S+) (%d+)$')
  end
end

-- Notes that a record has changed; `flush_sessions` plans its write, once.
local function save_session(s)
  if not s.changed then
    s.changed = true
    changed[#changed + 1] = s
  end
end
local function flush_sessions()
  for _, s in ipairs(changed) do
    if known[s.name] == s then
      plan('HSET', session_key(s.name), 'm',
        struct.pack(RECORD, s.epoch, s.created, s.updated, s.grace, s.reap_at, s.granted))
    end
  end
end

-- When a session that is away is an orphan.
local function over_at(s)
  return end_since(group.resumed, s.reap_at, s.granted)
end

-- The session that an alias leads to, as planned; false for none.
local aliased = {}
local function session_of(alias)
  if aliased[alias] == nil then
    aliased[alias] = redis.call('HGET', ALIASES, alias)
  end
  return aliased[alias]
end
local function free_alias(s)
  if s.alias and session_of(s.alias) == s.name then
    plan('HDEL', ALIASES, s.alias)
    aliased[s.alias] = false
  end
end
local function lead_alias(alias, s)
  plan('HSET', ALIASES, alias, s.name)
  aliased[alias] = s.name
end

local function tell_session(kind, s, tenure, connection, ...)
  local about = { 'session', s.name, 'epoch', text(s.epoch), ... }
  if connection then
    about[#about + 1], about[#about + 2] = 'connection', connection
  end
  if s.alias then
    about[#about + 1], about[#about + 2] = 'alias', s.alias
  end
  event(kind, tenure, unpack(about))
end

-- Deletes a session with everything of it.
local function forget_session(s)
  plan('UNLINK', session_key(s.name))
  plan('ZREM', SESSIONS, s.name)
  if s.reap_at > 0 then
    plan('ZREM', AWAY, s.name)
  end
  free_alias(s)
  known[s.name] = false
end

local function brake_in_force()
  return group.brake_until ~= 0 and now < group.brake_until and too_many(count_lapses() + lapses_added)
end

-- Reaps a session if it is an orphan and nothing holds the reaper back.
local function reap_if_over(s)
  if not s or s.reap_at == 0 or now < over_at(s) or brake_in_force() or connections(s) > 0 then
    return false
  end
  forget_session(s)
  tell_session('session_reaped', s)
  return true
end

-- Its grace begins now.
local function begin_grace(s, default)
  s.granted = s.grace > 0 and s.grace or default
  s.reap_at, s.begun = now + s.granted, true
  save_session(s)
  plan('ZADD', AWAY, text(s.reap_at), s.name)
  return s.granted
end

-- Takes a connection from its session. When it was the last, the grace begins: answers how long it is.
local function disconnect(s, connection, default)
  s.count = connections(s) - 1
  s.conns[connection] = false
  plan('HDEL', conns_key(s.name), connection)
  if s.count == 0 then
    return begin_grace(s, default)
  end
end
