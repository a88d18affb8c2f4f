-- Part of the scripts that change a roster; follows `offline.lua`.

-- The first of these steps creates the field. From then on every step that ends a tenure reads the rows.
if not roster then
  roster = unpack_roster('')
  roster.stale = true
end

local function note_change()
  roster.changed, roster.stale = 1, true
end

-- The state of the mirror for a reply.
local function stamp()
  return { roster.seeded, roster.high, roster.settings, group.resumed }
end

local function tenure_of(provider, row)
  return provider .. '@' .. text(row.term)
end

-- Whether a tenure is its member's current one, including planned writes. It may be past its end.
local function is_current(tenure)
  return not ended_now[tenure] and redis.call('HGET', ALIVE, tenure) and true or false
end

-- The standing of a row's tenure. A tenure past its end is ended; one that had ended before the row arrived becomes
-- pending for the ledger. Also returns the entry of a live tenure.
local OFFLINE_NOW, LIVES, HAS_ENDED, UNKNOWN = 0, 1, 2, 3
local function stand(provider, row)
  if not row or row.term == 0 then
    return OFFLINE_NOW
  end
  local tenure = tenure_of(provider, row)
  local m = not ended_now[tenure] and load_tenure(tenure)
  if m then
    if now < end_of(m) then
      return LIVES, m
    end
    finish(provider, m, 'lapsed')
    return HAS_ENDED
  end
  if load_pending(tenure) then
    return HAS_ENDED
  end
  local record = ended_now[tenure] or redis.call('HGET', ENDED, tenure)
  local reason, last, at = string.match(record or '', '^(%S+) (%d+) (%d+)$')
  if not reason then
    return UNKNOWN
  end
  last, at = tonumber(last), tonumber(at)
  pend(tenure, reason, math.min(last, at), nil, at)
  return HAS_ENDED
end
