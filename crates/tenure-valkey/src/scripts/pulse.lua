-- The pulse of the store and the rule of gaps, as in `settling.rs`. Part of every script. PULSE and DUE_GROUPS are keys
-- outside the group, on the same node. A key that cannot be read is no pulse, whatever the error says: the group goes by
-- its own tick. In one table, because a function of Lua 5.1 can use 60 names from outside.
local Gap = { LEVELS = { 416666, 833333, 2000000 }, DUE_GROUPS = DUE_GROUPS }
local LEVELS = Gap.LEVELS
local function level_of(min_ttl)
  local most = min_ttl > 0 and min_ttl * 5 / 12 or LEVELS[3]
  return most >= LEVELS[3] and 3 or most >= LEVELS[2] and 2 or 1
end
function Gap.of(min_ttl)
  return LEVELS[level_of(min_ttl)]
end
local function is_near(tick, now, gap)
  return now >= tick and now - tick <= gap
end

Gap.is_near = is_near

-- Whether a deadline was written before the clock fell: it is further away than its ttl and one smallest level.
function Gap.is_before_fall(deadline, now, ttl)
  return deadline > now + ttl + LEVELS[1]
end

-- What a group knows of the pulse: its id at the last look, or -1, and the end of the last gap that was announced.
function Gap.known(packed)
  if not packed then
    return -1, 0
  end
  return struct.unpack('<dd', packed)
end

-- Looks for a gap that the group has not met. Returns the id of the pulse, or -1; when the store resumed, or nil; the
-- number of the cause; and how long the store was silent, if that is known.
function Gap.look(meta, now, tick, resumed, min_ttl, known)
  local level = level_of(min_ttl)
  local gap = LEVELS[level]
  local found = PULSE and redis.pcall('HMGET', PULSE, 'row', 'failed:' .. meta, 'node')
  local is_late = not is_near(tick, now, gap)
  -- The slot of the pulse may have moved to this node, too.
  local is_pulse = found and not found.err and found[1] and #found[1] == 64
    and not (THIS_NODE and is_late and found[3] ~= THIS_NODE())
  if not is_pulse then
    if is_late then
      return -1, now, now < tick and 2 or 1, math.max(0, now - tick)
    end
    return -1
  end
  local id, beaten, since = struct.unpack('<dd', found[1])
  if not is_near(beaten, now, gap) then
    return id, now, now < beaten and 2 or 1, math.max(0, now - beaten)
  end
  if THIS_NODE and is_late and known ~= id then
    -- While a group moved to this node, the node served others.
    return id, now, now < tick and 2 or 1, math.max(0, now - tick)
  end
  since = struct.unpack('<d', found[1], 9 + 8 * level)
  local lasted = struct.unpack('<d', found[1], 33 + 8 * level)
  local at = (known ~= id or since > resumed) and since or nil
  local failed = tonumber(found[2] or nil)
  if failed and failed > resumed and failed <= now then
    at = math.max(at or 0, failed)
  end
  return id, at, now < tick and 2 or 1, at == since and lasted > 0 and lasted or nil
end

-- When every ttl last restarted, once a gap is met.
function Gap.resume(before, at, now)
  return before > now and at or math.max(before, at)
end
