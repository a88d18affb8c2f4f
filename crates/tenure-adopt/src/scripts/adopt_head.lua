#!lua
-- The head of every registry script. The first line declares a writing script, so that no server runs it on a replica,
-- where an expired key may still exist and a new one may be missing.
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

-- Whether the marker is still of this epoch: not on a server that lost or rolled back its data.
local function is_epoch(marker, epoch)
    local found = redis.call('GET', marker)
    return found and string.match(found, '^%S+') == epoch
end
