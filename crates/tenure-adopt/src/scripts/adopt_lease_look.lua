-- Looks at old leases, at most 200 a call. Changes nothing.
--
-- KEYS the leases.
-- Answers: one character a lease: `+` held, `-` there is none, `?` not a lease at all; then, for each that is held, its
-- value and how long it lasts (ms; -1 for ever).
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
