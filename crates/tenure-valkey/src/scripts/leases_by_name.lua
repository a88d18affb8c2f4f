-- ARGV 3..: leases. Returns the held ones: lease, the holder's tenure and the token, the holder's packed value when it
-- is a current tenure, and how the holder's tenure ended.
local leases, found, tenures = {}, {}, {}
for i = 3, #ARGV do
  leases[i - 2] = ARGV[i]
end
if #leases > 0 then
  for i, value in ipairs(redis.call('HMGET', PREFIX .. 'leases', unpack(leases))) do
    if value then
      tenures[#tenures + 1] = string.match(value, '^(%S*)')
      found[#found + 1] = { leases[i], value }
    end
  end
end
if #found > 0 then
  local packed = current_of(tenures)
  local ended = redis.call('HMGET', PREFIX .. 'ended', unpack(tenures))
  for i, lease in ipairs(found) do
    lease[3], lease[4] = packed[i] or '', ended[i] or ''
  end
end
return { NONCE, now, 'ok', life(), found }
