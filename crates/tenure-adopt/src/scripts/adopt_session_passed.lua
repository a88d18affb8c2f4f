-- Records the end of a pass over the whole keyspace.
--
-- KEYS[1] the pass counters. ARGV[3] the number of entries that the pass changed.
-- Returns: the number of consecutive passes without a change.
local quiet = 0
if ARGV[3] == '0' then
    quiet = redis.call('HINCRBY', KEYS[1], 'quiet', 1)
else
    redis.call('HSET', KEYS[1], 'quiet', 0)
end
redis.call('HSET', KEYS[1], 'at', head[2])
head[4] = quiet
return head
