-- Shared by the scripts that change a roster; follows `offline.lua`.

-- The field is there from the first of these steps on, so that from then on whoever ends somebody looks at the rows.
if not roster then
  roster = unpack_roster('')
  roster.stale = true
end

local function note_change()
  roster.changed, roster.stale = 1, true
end

-- About the mirror, for every reply that tells it.
local function stamp()
  return { roster.seeded, roster.high, roster.settings, group.resumed }
end

local function tenure_of(provider, row)
  return provider .. '@' .. text(row.term)
end

-- Whether a tenure is its member's current one, as planned. It may be past its end.
local function is_current(tenure)
  return not ended_now[tenure] and redis.call('HGET', ALIVE, tenure) and true or false
end

-- How the tenure of a row stands: one past its end is ended, and one that had ended before the row came joins those that the
-- ledger has to follow. Answers the entry of one that is alive, too.
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
