-- KEYS 1, 2: the pulse, the index of due groups. ARGV 1..3: nonce, not-after, max ttl; 4: how many groups with failed
-- beats a pulse names; 5..: the meta keys of groups of which a beat failed. Beats the pulse, as `Pulse::beaten`.
local HALF = 69444
local stored = redis.call('HGETALL', KEYS[1])
local now = clock()
local id, beaten, since, lasted, failed, n = 0, nil, { 0, 0, 0 }, { 0, 0, 0 }, {}, 0
for i = 1, #stored, 2 do
  local field, value = stored[i], stored[i + 1]
  if field == 'row' and #value == 64 then
    id, beaten, since[1], since[2], since[3], lasted[1], lasted[2], lasted[3] = struct.unpack('<dddddddd', value)
  elseif tonumber(value) and now - tonumber(value) <= 2 * tonumber(ARGV[3]) and tonumber(value) <= now then
    failed[field], n = value, n + 1
  elseif field ~= 'row' then
    redis.call('HDEL', KEYS[1], field)
  end
end
for i = 5, #ARGV do
  local field = 'failed:' .. ARGV[i]
  n = failed[field] and n or n + 1
  failed[field] = string.format('%.0f', now)
  redis.call('HSET', KEYS[1], field, failed[field])
end
local too_many = n > tonumber(ARGV[4])
if too_many then
  for field in pairs(failed) do
    redis.call('HDEL', KEYS[1], field)
  end
end
if not beaten or now < beaten then
  id = math.max(beaten and id + 1 or 0, now)
  beaten, since, lasted = now, { now, now, now }, { 0, 0, 0 }
  -- Due times may be in the future by more than is possible. Every process visits every group.
  redis.pcall('ZREM', KEYS[2], '')
elseif now - beaten >= HALF then
  for level = 1, 3 do
    if now - beaten > Gap.LEVELS[level] then
      since[level], lasted[level] = now, now - beaten
    end
  end
  beaten = now
elseif not too_many then
  return { ARGV[1], now, 'ok' }
end
if too_many then
  since, lasted = { now, now, now }, { 0, 0, 0 }
end
redis.call('HSET', KEYS[1], 'row',
  struct.pack('<dddddddd', id, beaten, since[1], since[2], since[3], lasted[1], lasted[2], lasted[3]))
return { ARGV[1], now, 'ok' }
