-- Checks heartbeat keys, at most 200 per call.
--
-- KEYS[1] the marker, KEYS[2..] the heartbeat keys. ARGV[3] the epoch, or empty for a preview.
-- Returns: 1 if the marker is of this epoch, and one character per key: `-` absent, `+` present, `=` present without a
-- ttl.
local kept = ARGV[3] == '' or is_epoch(KEYS[1], ARGV[3])
local seen = {}
for i = 2, #KEYS do
    local left = redis.call('PTTL', KEYS[i])
    seen[i - 1] = left == -2 and '-' or (left == -1 and '=' or '+')
end
head[4] = kept and 1 or 0
head[5] = table.concat(seen)
return head
