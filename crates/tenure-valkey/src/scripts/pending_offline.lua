-- ARGV 8, 9: the limit, '1' to lift the brake. Returns each tenure with its record, when to ask again or 0, and the
-- brake (since, until, lapsed, present) if it holds any back, or {}.
local limit = tonumber(ARGV[8])
lift_brake(ARGV[9] == '1')
local braked = group.brake_until ~= 0

-- Both lists are sorted: by end, then by name.
local waiting = {}
for _, list in ipairs(braked and { OFFLINE } or { OFFLINE, OFFLINE_LAPSED }) do
  local found = redis.call('ZRANGE', list, 0, limit, 'WITHSCORES')
  for i = 1, #found, 2 do
    waiting[#waiting + 1] = { tenure = found[i], at = tonumber(found[i + 1]), list = list }
  end
end
table.sort(waiting, function(a, b)
  if a.at ~= b.at then
    return a.at < b.at
  end
  return byte_less(a.tenure, b.tenure)
end)

local items, again = {}, nil
for _, one in ipairs(waiting) do
  if one.at > now or #items >= 2 * limit then
    again = again or one.at
    break
  end
  local record = load_pending(one.tenure)
  if record then
    items[#items + 1], items[#items + 2] = one.tenure, record
  else
    -- The entry has no record.
    plan('ZREM', one.list, one.tenure)
    again = now
  end
end
local brake = {}
if braked and redis.call('ZCARD', OFFLINE_LAPSED) > 0 then
  brake = { group.brake_since, group.brake_until, count_lapses(), count_members() }
  again = math.min(again or group.brake_until, group.brake_until)
end
commit()
return { NONCE, now, 'ok', items, again or 0, brake }
