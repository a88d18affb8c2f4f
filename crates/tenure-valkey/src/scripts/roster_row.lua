-- The state of a whole roster, packed into one field of the group's meta: the highest applied version, whether the copy
-- is complete, the version of the settings, whether anything changed since the last count of available providers, the
-- time of that count or 0, its result, and how many were not checked. A group without a roster has no such field.
local ROSTER, ROSTER_SIZE = '<ddddddd', 56
-- The head of a provider's row: '1' if it is active, the term of its online tenure in 16 digits or 0, the time before
-- which its credentials are void, its version, capacity and occupancy. A flag byte follows for the optional fields,
-- which scripts only copy. The term is text because a tenure is text: formatting it would cost a script more than the
-- rest of the row.
local ROW, HEAD, LARGEST = '<I8I7I4I4', 40, 9007199254740991
local NOBODY = '0000000000000000'
-- How long a tombstone is kept, and the ttl of providers that need no heartbeat. µs.
local TOMBSTONES_KEPT, NEVER_STALE = 3600000000, 315360000000000

local function unpack_roster(packed)
  if not packed then
    return nil
  end
  local r = { high = 0, seeded = 0, settings = 0, changed = 0, counted_at = 0, count = 0, left = 0 }
  if #packed ~= ROSTER_SIZE then
    return r
  end
  -- `unpack` also returns the offset where it stopped, an integer like the others.
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

-- The tenure of a stored row; nil for none. Terms have had 16 digits since 2001.
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

-- Nil for an invalid row. Bits of the flag byte: a name, last online, last offline, and whether it was ever
-- deactivated.
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

-- The list of a provider: available, online otherwise, or deactivated and offline; an active offline provider is in no
-- list.
local function place_of(row, online)
  if not row.active then
    return online and 'barred' or 'inactive'
  elseif online then
    return row.occupancy < row.capacity and 'free' or 'busy'
  end
end

-- The ttl in the settings of a roster; nil for none.
local function ttl_of(settings)
  local stale_after, required = string.match(settings or '', '^%d+ %d+ (%d+) ([01]) %d+$')
  if required == '0' then
    return NEVER_STALE
  end
  return tonumber(stale_after)
end
