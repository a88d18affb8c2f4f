-- What is kept of a roster as a whole, packed into one field of the group's meta: the highest version that was taken over,
-- whether everything has arrived, the version of the settings, whether something has changed since the available were
-- counted, when that was or 0, how many there were, and how many were not looked at. A group without a roster has no such field.
local ROSTER, ROSTER_SIZE = '<ddddddd', 56
-- The head of a provider's row: '1' if it is active, the term of the tenure it is online under in 16 digits or 0, before when
-- what it was given is void, its version, capacity and occupancy. A byte follows that tells what comes then, which scripts
-- only keep. The term is text because a tenure is: to write it down costs a script more than all the rest.
local ROW, HEAD, LARGEST = '<I8I7I4I4', 40, 9007199254740991
local NOBODY = '0000000000000000'
-- How long the record of a removal is kept, and the ttl of those who need no heartbeat. µs.
local TOMBSTONES_KEPT, NEVER_STALE = 3600000000, 315360000000000

local function unpack_roster(packed)
  if not packed then
    return nil
  end
  local r = { high = 0, seeded = 0, settings = 0, changed = 0, counted_at = 0, count = 0, left = 0 }
  if #packed ~= ROSTER_SIZE then
    return r
  end
  -- `unpack` answers where it stopped, too: that is a whole number like the others.
  for _, number in ipairs({ struct.unpack(ROSTER, packed) }) do
    if not (number >= 0 and number <= LARGEST and number % 1 == 0) then
      return r
    end
  end
  r.high, r.seeded, r.settings, r.changed, r.counted_at, r.count, r.left = struct.unpack(ROSTER, packed)
  return r
end
local function pack_roster(r)
  return struct.pack(ROSTER, r.high, r.seeded, r.settings, r.changed, r.counted_at, r.count, r.left)
end

-- The tenure that a row names, given the row as it is kept; nil for none. Terms have had 16 digits since 2001.
local sub = string.sub
local function tenure_in(provider, packed)
  local term = sub(packed, 2, 17)
  if string.byte(packed, 2) == 48 then
    if term == NOBODY then
      return nil
    end
    term = string.match(term, '^0+(%d+)$') or 'none'
  end
  return provider .. '@' .. term
end

-- A row that is none is nil. Bits of the byte after the head: a name, when it came online last, when it went offline last, and
-- whether it was ever deactivated.
local function unpack_row(packed)
  if not packed or #packed <= HEAD then
    return nil
  end
  local row = { term = tonumber(string.match(sub(packed, 2, 17), '^%d+$')), active = sub(packed, 1, 1) }
  row.revoked, row.version, row.capacity, row.occupancy = struct.unpack(ROW, packed, 18)
  local flags = string.byte(packed, HEAD + 1)
  local left = #packed - HEAD - 1 - 8 * (math.floor(flags / 2) % 2 + math.floor(flags / 4) % 2)
  if not row.term or row.term > LARGEST or row.version > LARGEST or flags > 15 or left < 0
    or (flags % 2 == 0 and left > 0) or (row.active ~= '0' and row.active ~= '1') then
    return nil
  end
  row.active = row.active == '1'
  return row
end

-- Where a provider is listed: among the available, among the others who are online, or among the deactivated who are not;
-- one who is only offline is listed nowhere.
local function place_of(row, online)
  if not row.active then
    return online and 'barred' or 'inactive'
  elseif online then
    return row.occupancy < row.capacity and 'free' or 'busy'
  end
end

-- The ttl that the settings of a roster say, given their text; nil for none.
local function ttl_of(settings)
  local stale_after, required = string.match(settings or '', '^%d+ %d+ (%d+) ([01]) %d+$')
  if required == '0' then
    return NEVER_STALE
  end
  return tonumber(stale_after)
end
