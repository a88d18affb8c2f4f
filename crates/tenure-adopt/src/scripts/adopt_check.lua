-- Checks whether the store still has the state of the attempt's start. Decides nothing about owners.
--
-- KEYS[1] the marker. ARGV[3] the epoch, ARGV[4] the new ttl of the marker (ms).
-- Returns: 1 if the marker is of this epoch, its text (or false), INFO (or false if it is denied).
local kept = is_epoch(KEYS[1], ARGV[3])
if kept then
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
local info = redis.pcall('INFO', 'server', 'replication', 'stats', 'cluster')
head[4] = kept and 1 or 0
head[5] = redis.call('GET', KEYS[1])
head[6] = type(info) == 'string' and info
return head
