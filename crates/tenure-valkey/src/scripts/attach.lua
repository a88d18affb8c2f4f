-- ARGV 8..: member, term, then for each attach: session, connection, alias or '', grace or 0, '1' to only resume, the
-- number of fields, and each field with its JSON or '' to remove it.
-- Returns '', for each attach its outcome, and the tenure's revision, now and before; or the reason why the tenure may
-- not act. An outcome is 'g' (gone), 'f' or 'c' (too many fields or connections), 'n<session>' (the session that has
-- the alias), or 1 created, 2 attached, 3 resumed, and the session as returned by `seen`. Stops when the reply gets
-- large; the caller continues with the rest.
local LONG = 1048576
local member, term = ARGV[8], tonumber(ARGV[9])
local tenure = member .. '@' .. text(term)

local reason, m = refusal(member, term)
if reason then
  engage_brake()
  commit()
  return { NONCE, now, 'ok', reason }
end
local before = m.revision
alive[tenure] = true

-- The other session that has the alias and keeps it.
local function taken_by(item)
  local other = item.alias ~= '' and session_of(item.alias)
  if not other or other == item.session then
    return nil
  end
  local s = load_session(other)
  -- A dangling alias, or one that its session does not know, is free.
  if not s or s.alias ~= item.alias or reap_if_over(s) then
    return nil
  end
  return other
end

-- A new session, replacing the remains of a damaged one.
local function make(name)
  local s = { name = name, alias = false, epoch = 0, created = now, updated = now, grace = 0, reap_at = 0, granted = 0,
    conns = {}, count = 0, living = 0, data = {}, fields = 0 }
  for _, key in ipairs({ session_key(name), conns_key(name) }) do
    if not last_plan[key] and redis.call('HLEN', key) > 0 then
      plan('UNLINK', key)
    end
    touched[key] = true
  end
  plan('ZADD', SESSIONS, '0', name)
  known[name] = s
  return s
end

local function connect(s, item)
  if s.reap_at > 0 then
    s.reap_at, s.granted = 0, 0
    plan('ZREM', AWAY, s.name)
  end
  if item.alias ~= '' and item.alias ~= s.alias then
    free_alias(s)
    s.alias = item.alias
    plan('HSET', session_key(s.name), 'a', item.alias)
  end
  if item.alias ~= '' and session_of(item.alias) ~= s.name then
    lead_alias(item.alias, s)
  end
  local holding, holder = s.name .. '/' .. item.connection, holder_of(s, item.connection)
  if holder and holder ~= tenure then
    plan('SREM', connected_key(holder), holding)
    lose(holder)
  end
  if not s.conns[item.connection] then
    s.count = s.count + 1
  end
  if not is_alive(holder) then
    s.living = s.living + 1
  end
  s.conns[item.connection] = tenure .. ' ' .. text(s.epoch)
  plan('HSET', conns_key(s.name), item.connection, s.conns[item.connection])
  if holder ~= tenure then
    plan('SADD', connected_key(tenure), holding)
  end
end

local function attach(item)
  local s = load_session(item.session)
  if reap_if_over(s) then
    s = false
  end
  if item.resume_only and not s then
    return 'g'
  end
  if s then
    load_whole(s)
    if fields_after(s, item.data) > 64 then
      return 'f'
    end
    if not s.conns[item.connection] and s.count >= 200 then
      return 'c'
    end
  end
  local by = taken_by(item)
  if by then
    return 'n' .. by
  end
  local how = not s and 1 or s.reap_at > 0 and 3 or 2
  s = s or make(item.session)
  s.epoch = next_number()
  m.revision = s.epoch
  if item.grace > 0 then
    s.grace = item.grace
  end
  merge(s, item.data)
  connect(s, item)
  save_session(s)
  if how ~= 2 then
    tell_session(how == 1 and 'session_created' or 'session_resumed', s, tenure, item.connection)
  end
  return seen(s, how)
end

local outcomes, at = {}, 10
while at <= #ARGV and length < LONG do
  local item = { session = ARGV[at], connection = ARGV[at + 1], alias = ARGV[at + 2], grace = tonumber(ARGV[at + 3]),
    resume_only = ARGV[at + 4] == '1', data = {} }
  local fields = tonumber(ARGV[at + 5])
  at = at + 6
  for i = at, at + 2 * fields - 2, 2 do
    item.data[ARGV[i]] = ARGV[i + 1]
  end
  at = at + 2 * fields
  outcomes[#outcomes + 1] = attach(item)
end
if m.revision ~= before then
  save_member(member, m)
end
flush_sessions()
engage_brake()
commit()
return { NONCE, now, 'ok', '', outcomes, m.revision, before }
