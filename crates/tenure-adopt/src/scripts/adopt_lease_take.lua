-- Takes old leases, at most 200 a call: each that nobody holds, or that is ours already.
--
-- KEYS the leases. ARGV[3] for how long (ms), then the value to hold each by.
-- Answers: one character a lease: `o` ours, `-` held by another, `?` not a lease at all; then, for each that is held by
-- another, its value and how long it lasts (ms; -1 for ever).
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
