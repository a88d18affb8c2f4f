-- ARGV 3: a member. Returns the tenures that may hold something: ended ones not yet released, and the current one.
local tenures = redis.call('SMEMBERS', PREFIX .. 'unreleased:' .. ARGV[3])
local packed = redis.call('HGET', PREFIX .. 'members', ARGV[3])
if packed then
  tenures[#tenures + 1] = ARGV[3] .. '@' .. text((struct.unpack('<d', packed)))
end
return { NONCE, now, 'ok', tenures }
