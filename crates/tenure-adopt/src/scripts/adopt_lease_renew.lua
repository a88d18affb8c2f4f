-- Renews old leases, at most 200 per call: each only if it still has our value.
--
-- KEYS the leases. ARGV[3] the ttl (ms), then our value of each.
-- Returns: one character per lease: `o` renewed, `-` not ours any more.
local marks = {}
for i = 1, #KEYS do
    local mark = '-'
    if value_of(KEYS[i]) == ARGV[3 + i] then
        redis.call('PEXPIRE', KEYS[i], ARGV[3])
        mark = 'o'
    end
    marks[i] = mark
end
head[4] = table.concat(marks)
return head
