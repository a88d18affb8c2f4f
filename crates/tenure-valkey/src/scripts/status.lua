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

-- The raw state of a group; the caller interprets it. `not_before`: nothing is due before that for the caller.
local function status(not_before)
  local fields = { false, false, false, false, false, false, false, false }
  local meta = redis.call('HMGET', META, 'state', 'events', 'fell', 'empty')
  if meta[1] then
    local _, tick, resumed, min_ttl, _, until_, cause, _, brake_since, brake_until = struct.unpack(STATE, meta[1])
    fields = { tick, resumed, min_ttl, meta[2], until_, CAUSES[cause] or '', brake_since, brake_until }
  end
  local function first(list)
    return redis.call('ZRANGE', PREFIX .. list, 0, 0, 'WITHSCORES')[2] or false
  end
  local due = first('due')
  if due and not_before then
    due = math.max(tonumber(due), not_before)
  end
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
