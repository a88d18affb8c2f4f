-- Reads, engages or lifts the brake that all janitors of one hash share.
--
-- KEYS[1] the brake. ARGV[3] `read`, `engage` or `lift`.
-- To engage: ARGV[4] the part of the record after its time, ARGV[5] its ttl (ms), ARGV[6] the record to replace (empty:
-- only if there is none).
-- To lift: ARGV[4] the record to delete; another record stays.
-- Returns: the record in force now, or false.
local found = redis.call('GET', KEYS[1])
if ARGV[3] == 'engage' and (found or '') == ARGV[6] then
    redis.call('SET', KEYS[1], head[2] .. ' ' .. ARGV[4], 'PX', ARGV[5])
elseif ARGV[3] == 'lift' and found == ARGV[4] then
    redis.call('DEL', KEYS[1])
end
head[4] = redis.call('GET', KEYS[1])
return head
