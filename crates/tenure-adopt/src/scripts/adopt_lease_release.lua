-- Releases old leases, at most 200 a call: each only if it is still held by our very value.
--
-- KEYS the leases. ARGV[3..] the value that each is held by.
-- Answers: one character a lease: `o` released, `-` was not ours.
local marks = {}
for i = 1, #KEYS do
    local mark = '-'
    if value_of(KEYS[i]) == ARGV[2 + i] then
        redis.call('DEL', KEYS[i])
        mark = 'o'
    end
    marks[i] = mark
end
head[4] = table.concat(marks)
return head
