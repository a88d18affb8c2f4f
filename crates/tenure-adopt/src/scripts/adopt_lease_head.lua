-- Every step over old leases begins with this, after a line that says what a server may refuse it for.
--
-- ARGV[1] the nonce, ARGV[2] the not-after time in microseconds or 0.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local head = { ARGV[1], string.format('%.0f', now), 'ok' }
local not_after = tonumber(ARGV[2])
if not_after > 0 and now > not_after then
    head[3] = 'late'
    return head
end

-- What a key holds: its text, false when there is no such key, and nil when it holds something else than text.
local function value_of(key)
    local found = redis.pcall('GET', key)
    if type(found) == 'table' then
        return nil
    end
    return found
end
