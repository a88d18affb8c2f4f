-- Repairs the time indexes after the clock fell back; follows `session.lua`. Entries made before are further in the
-- future than possible. Each step corrects a part of them, and the next step continues from there.
local AT_ONCE = 200

-- A part of an index from a position; '-' at its end. An index of a foreign type is empty.
local function part_of(command, key, place)
  local found = place ~= '-' and ask_ours(command, key, place, 'COUNT', AT_ONCE)
  if not found then
    return '-', {}
  end
  return found[1] == '0' and '-' or found[1], found[2]
end

-- Corrects an index whose entries cannot be later than `latest`. Returns whether there are more.
local function cut(key, latest)
  local late = ask_ours('ZRANGEBYSCORE', key, '(' .. text(latest), '+inf', 'LIMIT', 0, AT_ONCE) or {}
  for _, name in ipairs(late) do
    plan('ZADD', key, text(latest), name)
  end
  return #late == AT_ONCE
end

local function rescore_members(place)
  local next_place, found = part_of('ZSCAN', DUE, place)
  for i = 1, #found, 2 do
    if tonumber(found[i + 1]) > now then
      local m = load_member(found[i])
      plan('ZADD', DUE, text(m and end_of(m) or now), found[i])
    end
  end
  return next_place
end

local function rescore_sessions(place)
  local next_place, found = part_of('ZSCAN', AWAY, place)
  for i = 1, #found, 2 do
    if tonumber(found[i + 1]) > now then
      local s = load_session(found[i])
      plan('ZADD', AWAY, text(s and s.reap_at > 0 and over_at(s) or now), found[i])
    end
  end
  return next_place
end

-- The wait of a process that may still be working is kept; the record expires as if the tenure had ended now.
local function rescore_ended(place)
  local next_place, found = part_of('HSCAN', ENDED, place)
  for i = 1, #found, 2 do
    local reason, last, at = string.match(found[i + 1], '^(%S+) (%d+) (%d+)$')
    if at and tonumber(at) > now then
      plan('HSET', ENDED, found[i], reason .. ' ' .. text(now + tonumber(last) - tonumber(at)) .. ' ' .. NOW)
    end
  end
  return next_place
end

local function rescore_rest()
  local more = false
  for _, list in ipairs({ RELEASING, LAPSED, OFFLINE, OFFLINE_LAPSED }) do
    more = cut(list, now + BURST) or more
  end
  more = cut(LAPSES, now) or more
  more = cut(FORGET, now + 2 * MAX_TTL) or more
  for _, list in ipairs({ 'wake', 'nodes' }) do
    more = cut(PREFIX .. list, now) or more
  end
  local reserved = redis.call('ZRANGEBYSCORE', RESERVATIONS, '(' .. text(now + RESERVATION), '+inf', 'LIMIT', 0, AT_ONCE)
  for _, field in ipairs(reserved) do
    plan('ZREM', RESERVATIONS, field)
    plan('HDEL', RESERVED, field)
  end
  return more or #reserved == AT_ONCE
end

-- A whole step: returns, as `end_lapsed` does, that more is due now.
local function rescore(places)
  local members, sessions, ended = string.match(places, '^(%S+) (%S+) (%S+)$')
  members = rescore_members(members or '0')
  sessions = rescore_sessions(sessions or '0')
  ended = rescore_ended(ended or '0')
  if rescore_rest() or members ~= '-' or sessions ~= '-' or ended ~= '-' then
    plan('HSET', META, 'fell', members .. ' ' .. sessions .. ' ' .. ended)
  else
    plan('HDEL', META, 'fell')
  end
  commit()
  return { NONCE, now, 'ok', now, {} }
end
