-- ARGV 8: the approximate limit: the size of one scan step. Returns whether there are more.
--
-- The progress is kept in the meta: 'k' while one scan step returns all members (members with the new ttl are then
-- skipped), or 'h', when the store last resumed, and a cursor. A restarted server numbers its buckets differently, so
-- an older cursor is invalid.
local limit = tonumber(ARGV[8])
local stored_place = redis.call('HMGET', META, 'retime', 'settings')
local place, ttl = stored_place[1], ttl_of(stored_place[2])

local seen = {}
local function retime(member)
  local m = not seen[member] and load_member(member)
  seen[member] = true
  if not m or m.ttl == ttl then
    return
  elseif now >= end_of(m) then
    finish(member, m, 'lapsed')
    return
  end
  note_ttl(ttl)
  -- A member that never lapsed before gets the whole new ttl.
  local heard = m.ttl > DAY and now or math.max(0, m.deadline - m.ttl)
  m.deadline, m.ttl = heard + ttl, ttl
  save_member(member, m)
  plan_whole('ZADD', DUE, { 'LT', text(m.deadline), member })
end

-- The members among these with another ttl.
local function others(names)
  local tenures, found = {}, {}
  for i, term in ipairs(#names > 0 and redis.call('HMGET', MEMBERS, unpack(names)) or {}) do
    tenures[i] = term and names[i] .. '@' .. text((struct.unpack('<d', term))) or names[i]
  end
  for i, row in ipairs(#names > 0 and redis.call('HMGET', ALIVE, unpack(tenures)) or {}) do
    if row and select(2, unpack_life(row)) ~= ttl then
      found[#found + 1] = names[i]
    end
  end
  return found
end

-- Some members, and the position to continue at; nil at the end.
local function some_members()
  local resumed, cursor = string.match(place, '^h(%d+) (%d+)$')
  if tonumber(resumed) ~= group.resumed then
    cursor = '0'
  end
  local found, names = redis.call('HSCAN', MEMBERS, cursor, 'COUNT', limit), {}
  for i = 1, #found[2], 2 do
    names[#names + 1] = found[2][i]
  end
  names = others(names)
  -- Sorted for readers of the events where that is cheap.
  if #names <= 16 then
    table.sort(names, byte_less)
  end
  if cursor ~= '0' or found[1] ~= '0' then
    return names, found[1] ~= '0' and 'h' .. text(group.resumed) .. ' ' .. found[1] or nil
  end
  return { unpack(names, 1, math.min(limit, #names)) }, #names > limit and 'k' or nil
end

local more = false
if place and ttl then
  local names, next_place = some_members()
  for _, member in ipairs(names) do
    retime(member)
  end
  if next_place then
    more = true
    plan('HSET', META, 'retime', next_place)
  else
    plan('HDEL', META, 'retime')
    group.min_ttl, group.max_ttl = 0, 0
    note_ttl(ttl)
  end
  note_change()
  engage_brake()
end
commit()
return { NONCE, now, 'ok', more and 1 or 0 }
