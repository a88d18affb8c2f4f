-- Reaps orphans, at most 100 per call: each only if now its session has been disconnected for long enough and has no
-- references. Reads everything before it deletes anything.
--
-- KEYS[1] the index, KEYS[2] our entries, KEYS[3] the marker, KEYS[4..] the sessions. ARGV[3] the epoch, or empty for a
-- preview that changes nothing; ARGV[4] the page number, ARGV[5] the new ttl of the marker (ms), ARGV[6] the field,
-- ARGV[7] the unit in microseconds, ARGV[8] the age of an orphan, ARGV[9] when the store resumed serving (both in
-- microseconds), ARGV[10] the templates of other keys as JSON, ARGV[11..] the ids in the order of the keys.
-- Returns: 1 if the marker was of this epoch (otherwise nothing changed), one character per candidate, and in a preview
-- the other keys that would be deleted with each reaped session.
-- The entry is removed for `x` reaped, `z` reaped without any reference count, `m` no session, `a` active with an entry
-- of ours.
-- It gets its new time for `y` disconnected for a shorter time, with an entry of ours; `.` is not an old entry any
-- more.
-- It stays for `A` active, `Y` disconnected for a shorter time, `F` with references, `N` not a hash, `I` not a time.
-- The marker stores the same result, so that it can be read back after a lost reply.
local write = ARGV[3] ~= ''
if write and not is_epoch(KEYS[3], ARGV[3]) then
    head[4] = 0
    head[5] = ''
    head[6] = {}
    return head
end
local field, unit, max_age, resumed = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local templates = cjson.decode(ARGV[10])

local function is_old(since)
    return now - math.max(since, resumed) >= max_age
end

-- A longer field is no part of a key, and a longer text neither a count nor an id.
local MOST_OF_KEY = 4096

-- The key that a template makes for a session, or nil if a field of the template is missing.
local function key_of(template, id, session)
    local parts = {}
    for i, part in ipairs(template) do
        local text = part[2]
        if part[1] == 'id' then
            text = id
        elseif part[1] == 'field' then
            local length = redis.pcall('HSTRLEN', session, text)
            if type(length) == 'number' and length > MOST_OF_KEY then
                return nil
            end
            text = redis.call('HGET', session, text)
            if not text or text == '' then
                return nil
            end
        end
        parts[i] = text
    end
    return table.concat(parts)
end

-- The text of a key: false if it does not exist, nil if it is not a short string.
local function text_of(key)
    local kind = redis.call('TYPE', key).ok
    if kind == 'none' then
        return false
    end
    local length = kind == 'string' and redis.pcall('STRLEN', key)
    if not length or (type(length) == 'number' and length > MOST_OF_KEY) then
        return nil
    end
    return redis.call('GET', key)
end

-- Whether a session has references, and whether any reference count exists.
local function is_referred_to(id, session)
    local is_counted = #templates.refs == 0
    for _, template in ipairs(templates.refs) do
        local count = text_of(key_of(template, id, session))
        if count == nil or (count and count ~= '' and tonumber(count) ~= 0) then
            return true, true
        end
        is_counted = is_counted or count ~= false
    end
    return false, is_counted
end

-- The keys that belong to a session. An alias that now leads to another session does not.
local function keys_of(id, session)
    local keys = { session }
    for _, template in ipairs(templates.refs) do
        keys[#keys + 1] = key_of(template, id, session)
    end
    for _, template in ipairs(templates.alias) do
        local alias = key_of(template, id, session)
        local leads_to = alias and text_of(alias)
        if leads_to and (leads_to == id or leads_to == session) then
            keys[#keys + 1] = alias
        end
    end
    return keys
end

local marks, gone, entries, younger, told = {}, {}, {}, {}, {}
for i = 4, #KEYS do
    local session, id, mark = KEYS[i], ARGV[i + 7], nil
    local score = redis.call('ZSCORE', KEYS[1], id)
    if not score or not is_old(tonumber(score) * unit) then
        mark = '.'
    else
        local ours = score == redis.call('ZSCORE', KEYS[2], id)
        local state, value, since = state_of(session, field, unit)
        if state == 'g' then
            mark = 'm'
        elseif state == 'n' then
            mark = 'N'
        elseif state == 'i' then
            mark = 'I'
        elseif state == '+' then
            mark = ours and 'a' or 'A'
        elseif not is_old(since) then
            mark = ours and 'y' or 'Y'
            younger[#younger + 1] = ours and { id, value } or nil
        else
            local is_kept, is_counted = is_referred_to(id, session)
            mark = is_kept and 'F' or (is_counted and 'x' or 'z')
        end
        if mark == 'x' or mark == 'z' then
            local others = {}
            for n, key in ipairs(keys_of(id, session)) do
                gone[#gone + 1] = key
                if not write and n > 1 and text_of(key) ~= false then
                    others[#others + 1] = key
                end
            end
            told[#told + 1] = not write and others or nil
        end
    end
    if mark == 'x' or mark == 'z' or mark == 'm' or mark == 'a' then
        entries[#entries + 1] = id
    end
    marks[#marks + 1] = mark
end
local answer = table.concat(marks)
if write then
    redis.call('SET', KEYS[3], ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. answer, 'PX', ARGV[5])
    if #gone > 0 then
        redis.call('UNLINK', unpack(gone))
    end
    if #entries > 0 then
        redis.call('ZREM', KEYS[1], unpack(entries))
        redis.call('ZREM', KEYS[2], unpack(entries))
    end
    for _, entry in ipairs(younger) do
        redis.call('ZADD', KEYS[1], 'XX', entry[2], entry[1])
        redis.call('ZADD', KEYS[2], 'XX', entry[2], entry[1])
    end
end
head[4] = 1
head[5] = answer
head[6] = told
return head
