-- Part of every script that changes sessions; follows `lib.lua`.
--
-- A session is a hash: `m` is its record (six doubles), `a` its alias, `d:<field>` each field of its data, as JSON. Its
-- connections are a second hash: connection -> 'tenure epoch'. A session without connections is disconnected: its
-- record has the end of its grace and its length, and it is in the index of disconnected sessions, which is lazy like
-- that of the members.

local SESSIONS, AWAY, ALIASES = PREFIX .. 'sessions', PREFIX .. 'disconnected', PREFIX .. 'aliases'
-- Epoch, creation time, last change of its data, its own grace or 0; the end of its grace or 0, and the granted grace.
local RECORD, RECORD_SIZE = '<dddddd', 48

local function session_key(name)
  return PREFIX .. 'sess:' .. name
end
local function conns_key(name)
  return PREFIX .. 'conns:' .. name
end

-- Nil for an invalid record: it must hold integers below 2^53 and an epoch.
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

-- Treats a key of a foreign type as missing. Any other error ends the step: a key in migration to another node must not
-- read as missing.
local function ours_or_foreign(answer)
  if type(answer) == 'table' and answer.err and not string.find(answer.err, 'WRONGTYPE', 1, true) then
    error(answer)
  end
  return answer
end

-- Sessions by name, including planned writes; false for none. A key of a foreign type is not a session: `commit`
-- refuses to write to it.
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

-- The number of connections of a session. An unreadable count does not count as zero.
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

-- Marks a record as changed; `flush_sessions` plans one write for it.
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

-- When a disconnected session becomes an orphan.
local function over_at(s)
  return end_since(group.resumed, s.reap_at, s.granted)
end

-- The session of an alias, including planned writes; false for none.
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

-- Deletes a session with all its data.
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

-- Reaps a session if it is an orphan and the reaper is not held back.
local function reap_if_over(s)
  if not s or s.reap_at == 0 or now < over_at(s) or brake_in_force() or connections(s) > 0 then
    return false
  end
  forget_session(s)
  tell_session('session_reaped', s)
  return true
end

-- Starts the grace of a session.
local function begin_grace(s, default)
  s.granted = s.grace > 0 and s.grace or default
  s.reap_at, s.begun = now + s.granted, true
  save_session(s)
  plan('ZADD', AWAY, text(s.reap_at), s.name)
  return s.granted
end

-- Removes a connection from its session. If it was the last one, starts the grace and returns its length.
local function disconnect(s, connection, default)
  s.count = connections(s) - 1
  s.conns[connection] = false
  plan('HDEL', conns_key(s.name), connection)
  if s.count == 0 then
    return begin_grace(s, default)
  end
end
