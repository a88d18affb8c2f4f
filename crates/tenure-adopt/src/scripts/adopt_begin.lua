-- Starts an attempt: writes the marker of its epoch and returns the previous one.
--
-- KEYS[1] the marker. ARGV[3] the epoch, ARGV[4] how long the marker lives (ms).
-- Returns: the previous marker (or false), INFO (or false if it is denied).
local before = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
local info = redis.pcall('INFO', 'server', 'replication', 'stats', 'cluster')
head[4] = before
head[5] = type(info) == 'string' and info
return head
