-- ARGV 8..: the maximum number of entries, the default grace, the age above which a connection is dropped or 0; and the
-- position: the phase, and for 'members', 'releasing' and 'releasing:lapsed' the cursor for more tenures or '' for
-- none, a cursor into the holdings of the first tenure, and tenures; for 'sessions' the name to continue after; for
-- 'disconnected' and 'aliases' a cursor.
-- Returns how many entries were checked, the position to continue at as above ('' when the phase is complete), and each
-- kind of drift with its count.
--
-- Holdings are checked first: they show which connections of damaged sessions are alive.
local limit, default, max_age, phase = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11]
local looked, counts, kinds = 0, {}, {}
local may_take = group.unsettled_until == 0 and not brake_in_force()

local function drifted(kind)
  if not counts[kind] then
    counts[kind] = 0
    kinds[#kinds + 1] = kind
  end
  counts[kind] = counts[kind] + 1
end

-- Reads a key; a key of a foreign type is deleted.
local gone = {}
local function ask(default_answer, command, key, ...)
  if gone[key] then
    return default_answer
  end
  local answer = redis.pcall(command, key, ...)
  if type(answer) == 'table' and answer.err then
    if not string.find(answer.err, 'WRONGTYPE', 1, true) then
      error(answer)
    end
    gone[key], touched[key] = true, true
    plan('UNLINK', key)
    drifted('broken_session')
    return default_answer
  end
  touched[key] = true
  return answer
end

local function is_listed(name)
  return ask(false, 'ZSCORE', SESSIONS, name)
end

-- The state of a tenure: 'current', 'ended' with work left for the janitor, or 'unknown'.
local standings = {}
local function standing_of(tenure)
  if not standings[tenure] then
    local listed = redis.call('ZSCORE', RELEASING, tenure) or redis.call('ZSCORE', LAPSED, tenure)
    standings[tenure] = load_tenure(tenure) and 'current' or listed and 'ended' or 'unknown'
  end
  return standings[tenure]
end

local function drop_holding(tenure, name, connection)
  plan('SREM', connected_key(tenure), name .. '/' .. connection)
  ask(0, 'SCARD', connected_key(tenure))
  lose(tenure)
end

local function connections_of(name)
  local row, found, count = ask({}, 'HGETALL', conns_key(name)), {}, 0
  for i = 1, #row, 2 do
    found[row[i]] = row[i + 1]
    count = count + 1
  end
  return found, count
end

local function drop_connections(name, found, kind)
  for connection, value in pairs(found) do
    local tenure = string.match(value, '^(%S+@%d+) %d+$')
    if tenure then
      drop_holding(tenure, name, connection)
    end
    if kind then
      drifted(kind)
    end
  end
  if next(found) then
    plan('UNLINK', conns_key(name))
  end
end

-- Removes every reference to a session that does not exist.
local function clear_away(name, found)
  drop_connections(name, found, 'connection_without_session')
  if ask(false, 'ZSCORE', AWAY, name) then
    plan('ZREM', AWAY, name)
    drifted('index_without_session')
  end
  if is_listed(name) then
    plan('ZREM', SESSIONS, name)
    drifted('listing_without_session')
  end
end

-- Repairs a session with a damaged record: recreates it when it has live connections, else deletes it with all its
-- data.
local function mend(name, found)
  local epoch, lives = 0, false
  for _, value in pairs(found) do
    local tenure, number = string.match(value, '^(%S+@%d+) (%d+)$')
    if tenure and standing_of(tenure) == 'current' then
      epoch, lives = math.max(epoch, tonumber(number)), true
    end
  end
  if not lives and not may_take then
    return nil
  end
  local key = session_key(name)
  local alias = ask(false, 'HGET', key, 'a')
  if not gone[key] then
    drifted('broken_session')
  end
  local s = { name = name, alias = alias, epoch = epoch > 0 and epoch or next_number(), created = now, updated = now,
    grace = 0, reap_at = 0, granted = 0, conns = {} }
  if lives then
    known[name] = s
    save_session(s)
    return s
  end
  drop_connections(name, found)
  s.reap_at = now
  if gone[key] then
    free_alias(s)
    plan('ZREM', SESSIONS, name)
    plan('ZREM', AWAY, name)
  else
    forget_session(s)
  end
end

local function take(s, connection, tenure, kind, reason)
  drifted(kind)
  if tenure then
    drop_holding(tenure, s.name, connection)
  end
  if disconnect(s, connection, default) then
    tell_session('session_disconnected', s, tenure, connection, 'reason', reason)
  end
end

local function check_connection(s, connection, value)
  local tenure, epoch = string.match(value, '^(%S+@%d+) (%d+)$')
  local aged = tenure and max_age > 0 and epoch ~= '0' and tonumber(epoch) + max_age <= now
  if aged and may_take then
    return take(s, connection, tenure, 'aged_connection', 'max_age')
  end
  local standing = tenure and standing_of(tenure) or 'unknown'
  local held = tenure and ask(0, 'SISMEMBER', connected_key(tenure), s.name .. '/' .. connection) == 1
  if standing == 'current' then
    if not held then
      plan('SADD', connected_key(tenure), s.name .. '/' .. connection)
      drifted('holding_missing')
    end
  elseif may_take and not (standing == 'ended' and held) then
    take(s, connection, tenure, 'ghost_connection', 'ghost')
  end
end

-- A disconnected session is in the index no later than its grace ends; no other session is.
local function check_index(s)
  local score = tonumber(ask(false, 'ZSCORE', AWAY, s.name) or nil)
  if s.count > 0 then
    if score or s.reap_at > 0 then
      s.reap_at, s.granted = 0, 0
      save_session(s)
      plan('ZREM', AWAY, s.name)
      drifted('index_of_active')
    end
  elseif not s.begun and (s.reap_at == 0 or not score or (score ~= s.reap_at and score > over_at(s))) then
    begin_grace(s, default)
    drifted('session_without_index')
  end
end

local function check_alias(s)
  local leads_to = s.alias and session_of(s.alias)
  if not s.alias or leads_to == s.name then
    return
  end
  local other = leads_to and load_session(leads_to)
  if other and other.alias == s.alias then
    plan('HDEL', session_key(s.name), 'a')
    s.alias = false
  else
    lead_alias(s.alias, s)
  end
  drifted('alias_missing')
end

-- Checks one session in every direction.
local checked = {}
local function check_session(name)
  if checked[name] then
    return
  end
  checked[name] = true
  local found, count = connections_of(name)
  looked = looked + 1 + count
  local s = load_session(name)
  if not s and ask(1, 'HLEN', session_key(name)) == 0 then
    return clear_away(name, found)
  end
  s = s or mend(name, found)
  if not s then
    return
  end
  s.count = count
  if not is_listed(name) then
    plan('ZADD', SESSIONS, '0', name)
    drifted('listing_missing')
  end
  local names = {}
  for connection in pairs(found) do
    names[#names + 1] = connection
  end
  table.sort(names, byte_less)
  for _, connection in ipairs(names) do
    check_connection(s, connection, found[connection])
  end
  check_index(s)
  check_alias(s)
end

-- Restores a connection that only its live tenure records. The epoch of its attach is lost.
local function bring_back(s, connection, tenure)
  plan('HSET', conns_key(s.name), connection, tenure .. ' 0')
  s.conns[connection] = tenure .. ' 0'
  s.count = connections(s) + 1
  if s.reap_at > 0 then
    s.reap_at, s.granted = 0, 0
    save_session(s)
    plan('ZREM', AWAY, s.name)
  end
end

local function check_holding(tenure, holding)
  local name, connection = string.match(holding, '^([^/]+)/([^/]+)$')
  if not name then
    plan('SREM', connected_key(tenure), holding)
    lose(tenure)
    return drifted('holding_without_connection')
  end
  ask(0, 'HLEN', conns_key(name))
  local s = load_session(name)
  if not s or not is_listed(name) then
    check_session(name)
    s = load_session(name)
  end
  local value = not gone[conns_key(name)] and redis.call('HGET', conns_key(name), connection)
  if value and string.match(value, '^%S+') == tenure then
    return
  end
  drifted('holding_without_connection')
  local m = not value and s and load_tenure(tenure)
  local over = s and s.reap_at > 0 and not s.begun and now >= over_at(s)
  if gone[conns_key(name)] and s and not s.emptied then
    s.count, s.emptied = 0, true
  end
  if m and now < end_of(m) and not over and connections(s) < 200 then
    bring_back(s, connection, tenure)
  else
    drop_holding(tenure, name, connection)
  end
end

-- The tenures that may have connections: those of live members, and those on the janitor's lists.
local function tenures_at(cursor)
  local found, tenures
  if phase == 'members' then
    found, tenures = redis.call('HSCAN', MEMBERS, cursor, 'COUNT', limit), {}
    for i = 1, #found[2], 2 do
      tenures[#tenures + 1] = found[2][i] .. '@' .. text((struct.unpack('<d', found[2][i + 1])))
    end
  else
    found, tenures = redis.call('ZSCAN', PREFIX .. phase, cursor, 'COUNT', limit), {}
    for i = 1, #found[2], 2 do
      tenures[#tenures + 1] = found[2][i]
    end
  end
  local holders = {}
  for _, tenure in ipairs(tenures) do
    looked = looked + 1
    if ask(0, 'SCARD', connected_key(tenure)) > 0 then
      holders[#holders + 1] = tenure
    end
  end
  return found[1] ~= '0' and found[1] or '', holders
end

local function go_through_holdings()
  local cursor, inner, tenures = ARGV[12], ARGV[13], {}
  for i = 14, #ARGV do
    tenures[#tenures + 1] = ARGV[i]
  end
  if #tenures == 0 then
    cursor, tenures = tenures_at(cursor)
    inner = '0'
  end
  while tenures[1] and looked < limit do
    local found = ask({ '0', {} }, 'SSCAN', connected_key(tenures[1]), inner, 'COUNT', limit)
    for _, holding in ipairs(found[2]) do
      looked = looked + 1
      check_holding(tenures[1], holding)
    end
    inner = found[1]
    if inner ~= '0' then
      break
    end
    table.remove(tenures, 1)
  end
  if #tenures == 0 and cursor == '' then
    return {}
  end
  return { cursor, inner, unpack(tenures) }
end

local function go_through_sessions()
  local from = ARGV[12] == '' and '-' or '(' .. ARGV[12]
  local names = ask({}, 'ZRANGE', SESSIONS, from, '+', 'BYLEX', 'LIMIT', 0, limit)
  for i, name in ipairs(names) do
    if looked >= limit then
      return { names[i - 1] }
    end
    check_session(name)
  end
  return #names == limit and { names[#names] } or {}
end

-- Sessions on the list of all sessions are already checked.
local function go_through_index()
  local found = ask({ '0', {} }, 'ZSCAN', AWAY, ARGV[12], 'COUNT', limit)
  for i = 1, #found[2], 2 do
    looked = looked + 1
    if not is_listed(found[2][i]) then
      check_session(found[2][i])
    end
  end
  return found[1] ~= '0' and { found[1] } or {}
end

local function go_through_aliases()
  local found = ask({ '0', {} }, 'HSCAN', ALIASES, ARGV[12], 'COUNT', limit)
  for i = 1, #found[2], 2 do
    local alias, name = found[2][i], found[2][i + 1]
    looked = looked + 1
    local s = load_session(name)
    if not s or s.alias ~= alias then
      plan('HDEL', ALIASES, alias)
      aliased[alias] = false
      drifted('alias_without_session')
    end
    if not is_listed(name) then
      check_session(name)
    end
  end
  return found[1] ~= '0' and { found[1] } or {}
end

-- A shared key of a foreign type is deleted by a step of its own; the next step finds it empty.
local place
ask(0, 'ZCARD', SESSIONS)
ask(0, 'ZCARD', AWAY)
ask(0, 'HLEN', ALIASES)
if next(gone) then
  place = { unpack(ARGV, 12) }
elseif phase == 'sessions' then
  place = go_through_sessions()
elseif phase == 'disconnected' then
  place = go_through_index()
elseif phase == 'aliases' then
  place = go_through_aliases()
else
  place = go_through_holdings()
end

local repaired, shown = {}, {}
for i, kind in ipairs(kinds) do
  repaired[2 * i - 1], repaired[2 * i] = kind, counts[kind]
  shown[i] = kind .. '=' .. text(counts[kind])
end
if #shown > 0 then
  event('sessions_repaired', nil, 'counts', table.concat(shown, ' '))
end
flush_sessions()
commit()
return { NONCE, now, 'ok', looked, place, repaired }
