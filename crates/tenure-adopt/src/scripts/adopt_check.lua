-- Looks whether the store is still what it was when the attempt began. Nothing is decided about owners here.
--
-- KEYS[1] the marker. ARGV[3] the epoch, ARGV[4] how long the marker lives on (ms).
-- Answers: 1 when the marker is the epoch's, its text (or false), INFO (or false when it is denied).
local kept = is_epoch(KEYS[1], ARGV[3])
if kept then
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
local info = redis.pcall('INFO', 'server', 'replication', 'stats', 'cluster')
head[4] = kept and 1 or 0
head[5] = redis.call('GET', KEYS[1])
head[6] = type(info) == 'string' and info
return head
