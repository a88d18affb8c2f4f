-- ARGV 3..: providers. Returns the stamp, and for each nothing, or its row, the standing of its tenure (0 offline, 1
-- alive, 2 ended, 3 unknown) and its last heartbeat.
local providers = {}
for i = 3, #ARGV do
  providers[#providers + 1] = ARGV[i]
end
local function is_pending(tenure)
  local record = redis.call('HGET', PREFIX .. 'offlined', tenure)
  return record and record ~= 'done'
end
local seen = {}
local packed = #providers > 0 and redis.call('HMGET', PROVIDERS, unpack(providers)) or {}
local tenures, alive = lives_of(providers, packed)
for i = 1, #providers do
  local tenure, life = tenures[i], alive[i]
  if not packed[i] then
    seen[i] = 0
  elseif not tenure then
    seen[i] = { packed[i], 0, 0 }
  elseif life and lives(life) then
    local deadline, ttl = unpack_life(life)
    seen[i] = { packed[i], 1, math.max(0, deadline - ttl) }
  elseif life or redis.call('HGET', PREFIX .. 'ended', tenure) or is_pending(tenure) then
    seen[i] = { packed[i], 2, 0 }
  else
    seen[i] = { packed[i], 3, 0 }
  end
end
return { NONCE, now, 'ok', stamp(), seen }
