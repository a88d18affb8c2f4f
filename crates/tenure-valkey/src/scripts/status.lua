-- The length of a list. A session or roster key of a foreign type must not stop the maintenance of members; a step of
-- its own repairs it.
local function count(list)
  local number = redis.pcall('ZCARD', PREFIX .. list)
  if type(number) == 'table' and not string.find(number.err, 'WRONGTYPE', 1, true) then
    error(number)
  end
  return type(number) == 'number' and number or 0
end

-- Whether there is anything besides members that a sweep must handle.
local function is_occupied()
  return count('releasing') + count('releasing:lapsed') + redis.call('HLEN', PREFIX .. 'leases') + count('sessions')
    + count('offline') + count('offline:lapsed') > 0
end

-- The raw state of a group; the caller interprets it.
local function status()
  local fields = { false, false, false, false, false, false, false, false }
  local meta = redis.call('HMGET', META, 'state', 'events', 'fell', 'empty', 'pulse')
  if meta[1] then
    local _, tick, resumed, min_ttl, _, until_, cause, _, brake_since, brake_until = struct.unpack(STATE, meta[1])
    local id, at = Gap.look(META, now, tick, resumed, min_ttl, (Gap.known(meta[5])))
    fields = { at and Gap.resume(resumed, at, now) or resumed, id >= 0 and 1 or 0, min_ttl, meta[2], until_, CAUSES[cause] or '', brake_since, brake_until }
  end
  local function first(list)
    return redis.call('ZRANGE', PREFIX .. list, 0, 0, 'WITHSCORES')[2] or false
  end
  local due = first('due')
  if meta[3] then
    -- An index that was not corrected after the clock fell back finds no entry.
    due = now
  end
  local function first_of_some(list)
    local number = count(list)
    return number, number > 0 and first(list)
  end
  local away, reap_at = first_of_some('disconnected')
  local offline, offline_at = first_of_some('offline')
  local lapsed, lapsed_at = first_of_some('offline:lapsed')
  return { NONCE, now, 'ok', fields, redis.call('HLEN', PREFIX .. 'members'), redis.call('ZCARD', PREFIX .. 'lapses'),
    due, first('releasing'), first('releasing:lapsed'),
    redis.call('ZCARD', PREFIX .. 'releasing'), redis.call('ZCARD', PREFIX .. 'releasing:lapsed'),
    redis.call('HLEN', PREFIX .. 'leases') + redis.call('SCARD', PREFIX .. 'shared:more'), count('sessions'), away, reap_at,
    offline + lapsed, offline_at, lapsed_at, meta[4], first('wake') }
end

-- The status after a visit, and the time at which the next one has something to do, exactly, in the index of due groups.
-- Only steps that change a group use this.
local function visited()
  local seen = status()
  if Gap.DUE_GROUPS then
    local fields, first = seen[4], math.huge
    local function see(at)
      at = tonumber(at or nil)
      first = at and math.min(first, at) or first
    end
    local brake_until = tonumber(fields[8] or nil) or 0
    local held_back = brake_until > now and brake_until or nil
    see(seen[7])
    see(seen[8])
    see(seen[9] and (held_back or seen[9]))
    see(seen[15] and math.max(held_back or 0, tonumber(seen[15])))
    see(seen[17])
    see(seen[18] and (held_back or seen[18]))
    see(seen[20])
    see(fields[5] and fields[5] > 0 and fields[5])
    see(held_back)
    local name = string.match(META, '^{tenure:(.*)}:meta$')
    if first < math.huge then
      redis.pcall('ZADD', Gap.DUE_GROUPS, text(first), name)
    else
      redis.pcall('ZREM', Gap.DUE_GROUPS, name)
    end
  end
  return seen
end
