-- Notes that a pass over the whole keyspace has ended.
--
-- KEYS[1] the notes. ARGV[3] how many entries the pass changed.
-- Answers: how many passes in a row have changed nothing.
local quiet = 0
if ARGV[3] == '0' then
    quiet = redis.call('HINCRBY', KEYS[1], 'quiet', 1)
else
    redis.call('HSET', KEYS[1], 'quiet', 0)
end
redis.call('HSET', KEYS[1], 'at', head[2])
head[4] = quiet
return head
