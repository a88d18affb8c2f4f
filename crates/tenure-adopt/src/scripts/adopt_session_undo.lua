-- Removes our entries from the index, at most 200 per call: those that still have the score that we set.
--
-- KEYS[1] the index, KEYS[2] our entries, KEYS[3] the pass counters. ARGV[3] `write`, or `look` to change nothing;
-- ARGV[4] the start position (to write: 0).
-- Returns: the number of removed entries, of entries that are not ours any more, and of checked entries.
local some = redis.call('ZRANGE', KEYS[2], ARGV[4], ARGV[4] + 199, 'WITHSCORES')
local out, all = {}, {}
for i = 1, #some, 2 do
    if tonumber(redis.call('ZSCORE', KEYS[1], some[i]) or '') == tonumber(some[i + 1]) then
        out[#out + 1] = some[i]
    end
    all[#all + 1] = some[i]
end
if ARGV[3] == 'write' then
    if #out > 0 then
        redis.call('ZREM', KEYS[1], unpack(out))
    end
    if #all > 0 then
        redis.call('ZREM', KEYS[2], unpack(all))
    else
        redis.call('DEL', KEYS[3])
    end
end
head[4] = #out
head[5] = #all - #out
head[6] = #all
return head
