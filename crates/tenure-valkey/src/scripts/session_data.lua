-- Part of the scripts that change the data of sessions and return whole sessions; follows `session.lua`. Data is a
-- table of fields; in a change, '' removes a field.

-- How many bytes were loaded for the reply.
local length = 0

-- Whether a tenure is alive, cached by tenure. Tenures past their end are not ended here.
local alive = {}
local function is_alive(other)
  if other and alive[other] == nil then
    local current = load_tenure(other)
    alive[other] = current and now < end_of(current) or false
  end
  return other and alive[other]
end

-- Loads the data and the connections of a session.
local function load_whole(s)
  if s.data then
    return
  end
  s.data, s.fields, s.count, s.living = {}, 0, 0, 0
  local row = redis.call('HGETALL', session_key(s.name))
  for i = 1, #row, 2 do
    if string.sub(row[i], 1, 2) == 'd:' then
      s.data[string.sub(row[i], 3)] = row[i + 1]
      s.fields = s.fields + 1
      length = length + #row[i + 1]
    end
  end
  row = redis.call('HGETALL', conns_key(s.name))
  touched[conns_key(s.name)] = true
  for i = 1, #row, 2 do
    s.conns[row[i]] = row[i + 1]
    s.count = s.count + 1
    if is_alive(string.match(row[i + 1], '^%S+')) then
      s.living = s.living + 1
    end
  end
end

local function fields_after(s, change)
  local count = s.fields
  for field, value in pairs(change) do
    local there = s.data[field] ~= nil
    if value == '' and there then
      count = count - 1
    elseif value ~= '' and not there then
      count = count + 1
    end
  end
  return count
end

local function merge(s, change)
  local key = session_key(s.name)
  for field, value in pairs(change) do
    if value ~= '' then
      if s.data[field] == nil then
        s.fields = s.fields + 1
      end
      s.data[field] = value
      plan('HSET', key, 'd:' .. field, value)
    elseif s.data[field] ~= nil then
      s.data[field] = nil
      s.fields = s.fields - 1
      plan('HDEL', key, 'd:' .. field)
    end
    s.updated = now
  end
end

-- The session for a reply: `first`, then epoch, creation time, last change of its data, grace, alias or false, live
-- connections; the end of its grace or 0, the granted grace, and when it becomes an orphan; and its fields.
local function seen(s, first)
  local fields = {}
  for field, value in pairs(s.data) do
    fields[#fields + 1], fields[#fields + 2] = field, value
    length = length + #field + #value
  end
  return { first, s.epoch, s.created, s.updated, s.grace, s.alias, s.living, s.reap_at, s.granted, over_at(s), fields }
end
