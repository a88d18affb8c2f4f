-- ARGV 3..: HSCAN or SSCAN, the key suffix, the cursor, the approximate count. Returns when the store last resumed
-- serving the group (a restart invalidates cursors), the next cursor, and the names.
local found = redis.call(ARGV[3], PREFIX .. ARGV[4], ARGV[5], 'COUNT', ARGV[6])
local names = {}
for i = 1, #found[2], ARGV[3] == 'SSCAN' and 1 or 2 do
  names[#names + 1] = found[2][i]
end
return { NONCE, now, 'ok', life()[2] or 0, found[1], names }
