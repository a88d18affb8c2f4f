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

-- The longest text that is read as a time: longer fields of other programs are not fetched.
local LONGEST = 64

-- The days of a month before its first, in a year that begins in March.
local function days_of(year, month, day)
    if month <= 2 then
        year, month = year - 1, month + 12
    end
    local leaps = math.floor(year / 4) - math.floor(year / 100) + math.floor(year / 400)
    return year * 365 + leaps + math.floor((153 * (month - 3) + 2) / 5) + day - 1 - 719468
end

local MONTHS = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 }

local function is_date(year, month, day)
    local is_leap = year % 4 == 0 and (year % 100 ~= 0 or year % 400 == 0)
    local last = MONTHS[month]
    return last and day >= 1 and day <= ((month == 2 and is_leap) and 29 or last)
end

-- The offset from UTC in seconds, or nil: a time without one may be any of 26 hours.
local function offset_of(zone)
    zone = string.gsub(zone, '%[[%w_/+-]+%]$', '')
    if zone == 'Z' or zone == 'z' then
        return 0
    end
    local sign, hours, minutes = string.match(zone, '^([+-])(%d%d):?(%d%d)$')
    if not sign then
        sign, hours = string.match(zone, '^([+-])(%d%d)$')
    end
    hours, minutes = tonumber(hours), tonumber(minutes or '0')
    if not hours or hours > 18 or minutes > 59 then
        return nil
    end
    return (sign == '-' and -1 or 1) * (hours * 3600 + minutes * 60)
end

-- An ISO 8601 time with its zone in microseconds, or nil.
local function iso_time(text)
    local year, month, day, hour, minute, rest = string.match(text, '^(%d%d%d%d)%-(%d%d)%-(%d%d)[Tt ](%d%d):(%d%d)(.*)$')
    if not year then
        return nil
    end
    local second, fraction, zone = string.match(rest, '^:(%d%d)[.,](%d+)(.*)$')
    if not second then
        second, zone = string.match(rest, '^:(%d%d)(.*)$')
    end
    second, fraction, zone = tonumber(second or '0'), fraction or '0', zone or rest
    year, month, day, hour, minute = tonumber(year), tonumber(month), tonumber(day), tonumber(hour), tonumber(minute)
    local offset = offset_of(zone)
    if not offset or not is_date(year, month, day) or hour > 23 or minute > 59 or second > 60 then
        return nil
    end
    local seconds = days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - offset
    return seconds * 1e6 + math.floor(tonumber('0.' .. fraction) * 1e6 + 0.5)
end

-- The state of a key: `g` gone, `n` not a hash, `+` an active session, `i` a session whose field is not a time in the
-- unit, with the field's text, or `-` a disconnected session, with its score in the index and its time in microseconds.
-- The unit is given in microseconds; ISO 8601 with a zone is read in every unit. A time before September 2001 or more than a day
-- ahead is invalid: seconds read as milliseconds, or milliseconds read as seconds, fall there.
local function state_of(key, field, unit)
    local kind = redis.call('TYPE', key).ok
    if kind == 'none' then
        return 'g'
    elseif kind ~= 'hash' then
        return 'n'
    end
    -- Where HSTRLEN is denied, it is fetched.
    local length = redis.pcall('HSTRLEN', key, field)
    if type(length) == 'number' and length > LONGEST then
        return 'i', '(' .. length .. ' bytes)'
    end
    local value = redis.call('HGET', key, field)
    if not value or value == '' or string.match(value, '^0+%.?0*$') then
        return '+'
    end
    local text, since = value, nil
    if #value <= 24 and string.match(value, '^%d+%.?%d*$') then
        since = tonumber(value) * unit
    elseif #value <= LONGEST then
        since = iso_time(value)
        value = since and string.format('%.6f', since / unit)
    end
    if not since or since < 1e15 or since > now + 86400e6 then
        return 'i', string.sub(text, 1, LONGEST)
    end
    return '-', value, since
end
