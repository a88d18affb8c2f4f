-- ARGV 3..: a registry, keys. Returns the existing claims: key, tenure, and the owner's packed value when it is a
-- current tenure.
local keys, found, owners = {}, {}, {}
for i = 4, #ARGV do
  keys[i - 3] = ARGV[i]
end
if #keys > 0 then
  for i, tenure in ipairs(redis.call('HMGET', PREFIX .. 'claims:' .. ARGV[3], unpack(keys))) do
    if tenure then
      owners[#owners + 1] = tenure
      found[#found + 1] = { keys[i], tenure }
    end
  end
end
if #found > 0 then
  for i, packed in ipairs(current_of(owners)) do
    found[i][3] = packed
  end
end
return { NONCE, now, 'ok', life(), found }
