-- Evicts entries of dead owners, at most 200 per call: each only if now its owner's heartbeat keys are absent and the
-- entry has exactly the value that was checked.
--
-- KEYS[1] the hash, KEYS[2] the marker, KEYS[3..] the heartbeat keys, owner by owner. ARGV[3] the epoch, ARGV[4] the page
-- number, ARGV[5] the new ttl of the marker (ms), ARGV[6] one digit per owner: how many heartbeat keys it has; then
-- three per candidate: its field, its value, and the number of its owner (from 1).
-- Returns: 1 if the marker was of this epoch (otherwise nothing changed), and one character per candidate: `x` evicted,
-- `-` kept. The marker stores the same result, so that it can be read back after a lost reply.
if not is_epoch(KEYS[2], ARGV[3]) then
    head[4] = 0
    head[5] = ''
    return head
end
local dead, key = {}, 3
for owner = 1, #ARGV[6] do
    dead[owner] = true
    for _ = 1, tonumber(string.sub(ARGV[6], owner, owner)) do
        dead[owner] = dead[owner] and redis.call('EXISTS', KEYS[key]) == 0
        key = key + 1
    end
end
local gone, marks = {}, {}
for i = 7, #ARGV, 3 do
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
