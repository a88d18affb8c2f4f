-- Every step over sessions of other programs begins with this, after a line that says what a server may refuse it for.
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

-- Whether the marker still says that this is the pass's epoch: a server that lost or rolled back its data does not.
local function is_epoch(marker, epoch)
    local found = redis.call('GET', marker)
    return found and string.match(found, '^%S+') == epoch
end

-- What a key is: `g` gone, `n` no hash, `+` an active session, `i` one whose field is no time in the unit, or `-` a
-- disconnected session, then with its field's text and with the time in microseconds. The unit is given in microseconds.
-- No time: before September 2001 or more than a day ahead, which is what seconds read as milliseconds look like, and
-- milliseconds read as seconds.
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
