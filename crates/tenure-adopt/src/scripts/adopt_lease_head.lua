-- The head of every script over old leases, after a line that declares the script's flags.
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

-- The text of a key: false if it does not exist, nil if it is not a string.
local function value_of(key)
    local found = redis.pcall('GET', key)
    if type(found) == 'table' then
        return nil
    end
    return found
end
