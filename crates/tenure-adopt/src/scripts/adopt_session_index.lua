-- Compares sessions with their index entries, at most 200 per call. Adds missing entries and corrects ours.
--
-- KEYS[1] the index, KEYS[2] our entries (with the score we set), KEYS[3..] the sessions. ARGV[3] `write`, `repair`, or
-- `look` to change nothing; ARGV[4] the field, ARGV[5] the unit in microseconds, ARGV[6..] the ids in the order of the
-- keys. An entry is ours while it has the score that we set. Foreign entries are changed only by a repair and stay
-- foreign.
-- Returns one character per session:
-- - disconnected: `a` added, `k` correct in the index, `u` ours and updated, `o` foreign with another score;
-- - otherwise: `r` our entry removed, `!` a foreign entry (a repair removes it), `?` a foreign entry of an unreadable
--   session (no repair changes it), or the state without an entry (`g`, `n`, `+`, `i`);
-- then the field and the score for each that is not `k`, `g`, `n` or `+`.
local write, repair, unit = ARGV[3] ~= 'look', ARGV[3] == 'repair', tonumber(ARGV[5])
local marks, told = {}, {}
for i = 3, #KEYS do
    local id = ARGV[i + 3]
    local state, value = state_of(KEYS[i], ARGV[4], unit)
    local score, known = redis.call('ZSCORE', KEYS[1], id), redis.call('ZSCORE', KEYS[2], id)
    local ours = score and score == known
    local mark
    if state == '-' then
        if not score then
            mark = 'a'
        elseif tonumber(score) == tonumber(value) then
            mark = 'k'
        else
            mark = ours and 'u' or 'o'
        end
    elseif ours then
        mark = 'r'
    elseif score then
        mark = (state == 'i' or state == 'n') and '?' or '!'
    else
        mark = state
    end
    if write then
        if mark == 'a' then
            redis.call('ZADD', KEYS[1], 'NX', value, id)
            redis.call('ZADD', KEYS[2], value, id)
        elseif mark == 'u' then
            redis.call('ZADD', KEYS[1], 'XX', value, id)
            redis.call('ZADD', KEYS[2], 'XX', value, id)
        elseif mark == 'r' then
            redis.call('ZREM', KEYS[1], id)
            redis.call('ZREM', KEYS[2], id)
        elseif known and not ours then
            redis.call('ZREM', KEYS[2], id)
        end
        if repair and mark == 'o' then
            redis.call('ZADD', KEYS[1], 'XX', value, id)
        elseif repair and mark == '!' then
            redis.call('ZREM', KEYS[1], id)
        end
    end
    marks[#marks + 1] = mark
    if not string.find('kgn+', mark, 1, true) then
        told[#told + 1] = value or ''
        told[#told + 1] = score or ''
    end
end
head[4] = table.concat(marks)
head[5] = told
return head
