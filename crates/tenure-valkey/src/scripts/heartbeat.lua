-- ARGV 8..: how many; when their credentials were issued, as doubles (-1 for none), or ''; providers. Returns the
-- stamp, and 1 when all were recorded, or for each its reply: 1 recorded, 2 offline, 3 deactivated, 4 revoked, 5
-- unknown, 6 absent.
local count, issued = tonumber(ARGV[8]), ARGV[9]

local function hear(provider, shown)
  local row = load_row(provider)
  if not row then
    return 6
  elseif not row.active then
    return 3
  elseif shown >= 0 and shown < row.revoked then
    return 4
  end
  local standing, m = stand(provider, row)
  if standing == LIVES then
    m.deadline, m.marks = now + m.ttl, without_name(m.marks)
    save_member(provider, m)
    return 1
  end
  return standing == UNKNOWN and 5 or 2
end

if count > 0 then
  local names = { unpack(ARGV, 10, 9 + count) }
  for i, packed in ipairs(redis.call('HMGET', PROVIDERS, unpack(names))) do
    rows[names[i]] = unpack_row(packed) or false
  end
end
local replies = {}
for i = 1, count do
  replies[i] = hear(ARGV[9 + i], issued ~= '' and struct.unpack('<d', issued, 8 * i - 7) or -1)
end
engage_brake()
commit()
return { NONCE, now, 'ok', stamp(), replies }
