-- Acquires old leases, at most 200 per call: each that is free or already ours.
--
-- KEYS the leases. ARGV[3] the ttl (ms), then our value of each.
-- Returns: one character per lease: `o` ours, `-` held by another instance, `?` not a string; then the value and the
-- remaining ttl (ms; -1: none) of each that another instance holds.
local marks, held = {}, {}
for i = 1, #KEYS do
    local found = value_of(KEYS[i])
    local mark = '-'
    if found == nil then
        mark = '?'
    elseif not found then
        redis.call('SET', KEYS[i], ARGV[3 + i], 'PX', ARGV[3])
        mark = 'o'
    elseif found == ARGV[3 + i] then
        redis.call('PEXPIRE', KEYS[i], ARGV[3])
        mark = 'o'
    else
        held[#held + 1] = found
        held[#held + 1] = redis.call('PTTL', KEYS[i])
    end
    marks[i] = mark
end
head[4] = table.concat(marks)
head[5] = held
return head
