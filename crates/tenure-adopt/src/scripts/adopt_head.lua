#!lua
-- Every script of the adoption begins with this. The first line declares it as one that writes, so that no server runs
-- it on a replica, where a key that expired may still be there and a fresh one may not have arrived.
--
-- ARGV[1] the nonce, ARGV[2] the not-after time in microseconds or 0.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local head = { ARGV[1], string.format('%.0f', now), 'ok' }
local not_after = tonumber(ARGV[2])
if not_after > 0 and now > not_after then
    head[3] = 'late'
    return head
end

-- Whether the marker still says that this is the pass's epoch: a server that lost or rolled back its data does not.
local function is_epoch(marker, epoch)
    local found = redis.call('GET', marker)
    return found and string.match(found, '^%S+') == epoch
end
