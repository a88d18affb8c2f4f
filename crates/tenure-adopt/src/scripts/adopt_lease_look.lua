-- Reads old leases, at most 200 per call. Changes nothing.
--
-- KEYS the leases.
-- Returns: one character per lease: `+` held, `-` free, `?` not a string; then the value and the remaining ttl (ms; -1:
-- none) of each held one.
local marks, held = {}, {}
for i = 1, #KEYS do
    local found = value_of(KEYS[i])
    if found then
        marks[i] = '+'
        held[#held + 1] = found
        held[#held + 1] = redis.call('PTTL', KEYS[i])
    else
        marks[i] = found == nil and '?' or '-'
    end
end
head[4] = table.concat(marks)
head[5] = held
return head
