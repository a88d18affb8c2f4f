-- Releases old leases, at most 200 per call: each only if it still has our value.
--
-- KEYS the leases. ARGV[3..] our value of each.
-- Returns: one character per lease: `o` released, `-` not ours.
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
