-- The head of every session script, after a line that declares the script's flags.
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

-- Whether the marker is still of this epoch: not on a server that lost or rolled back its data.
local function is_epoch(marker, epoch)
    local found = redis.call('GET', marker)
    return found and string.match(found, '^%S+') == epoch
end

-- The state of a key: `g` gone, `n` not a hash, `+` an active session, `i` a session whose field is not a time in the
-- unit, or `-` a disconnected session; the last one with the field's text and its time in microseconds. The unit is
-- given in microseconds. A time before September 2001 or more than a day ahead is invalid: seconds read as
-- milliseconds, or milliseconds read as seconds, fall there.
local function state_of(key, field, unit)
    local kind = redis.call('TYPE', key).ok
    if kind == 'none' then
        return 'g'
    elseif kind ~= 'hash' then
        return 'n'
    end
    local value = redis.call('HGET', key, field)
    if not value or value == '' or string.match(value, '^0+%.?0*$') then
        return '+'
    elseif #value > 24 or not string.match(value, '^%d+%.?%d*$') then
        return 'i'
    end
    local since = tonumber(value) * unit
    if since < 1e15 or since > now + 86400e6 then
        return 'i'
    end
    return '-', value, since
end
