-- ARGV 3, 4: the first rank, the limit. Returns the members that may have lapsed, as in a page of members; and whether
-- there may be more.
local from, count = tonumber(ARGV[3]), tonumber(ARGV[4])
local names, more = {}, 0
local due = redis.call('ZRANGE', PREFIX .. 'due', from, from + count - 1, 'WITHSCORES')
for i = 1, #due, 2 do
  if tonumber(due[i + 1]) <= now then
    names[#names + 1] = due[i]
  end
end
if #names == count then
  more = 1
end
return { NONCE, now, 'ok', life(), members_of(names), more }
