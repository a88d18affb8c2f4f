-- Removes entries of dead owners, at most 200 a call: each only if, at this very moment, its owner's heartbeat key is
-- absent and the entry has exactly the value by which it was judged.
--
-- KEYS[1] the hash, KEYS[2] the marker, KEYS[3..] the heartbeat keys. ARGV[3] the epoch, ARGV[4] the number of the
-- page, ARGV[5] how long the marker lives on (ms), then three a candidate: its field, its value, and which of the
-- heartbeat keys is its owner's (from 1).
-- Answers: 1 when the marker was the epoch's (else nothing changed), and one character a candidate: `x` removed,
-- `-` not. The marker keeps the same answer, for a caller whose reply is lost.
if not is_epoch(KEYS[2], ARGV[3]) then
    head[4] = 0
    head[5] = ''
    return head
end
local dead = {}
for i = 3, #KEYS do
    dead[i - 2] = redis.call('EXISTS', KEYS[i]) == 0
end
local gone, marks = {}, {}
for i = 6, #ARGV, 3 do
    local mark = '-'
    if dead[tonumber(ARGV[i + 2])] and redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
        gone[#gone + 1] = ARGV[i]
        mark = 'x'
    end
    marks[#marks + 1] = mark
end
local answer = table.concat(marks)
redis.call('SET', KEYS[2], ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. answer, 'PX', ARGV[5])
if #gone > 0 then
    redis.call('HDEL', KEYS[1], unpack(gone))
end
head[4] = 1
head[5] = answer
return head
