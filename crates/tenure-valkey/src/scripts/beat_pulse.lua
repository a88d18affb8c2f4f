-- KEYS 1, 2: the pulse, the index of due groups. ARGV 1..3: nonce, not-after, max ttl; 4: how many groups with failed
-- beats a pulse names; 5, 6: on a cluster the pulse and the node of an earlier answer, if this node had it in a slot that it
-- has given away, or ''; 7..: the meta keys of groups of which a beat failed. Beats the pulse, as `Pulse::beaten`. Returns
-- the pulse and its node, or nothing without the right to know the node.
local HALF = 69444
local this_node = THIS_NODE and THIS_NODE()
if THIS_NODE and not this_node then
  return { ARGV[1], clock(), 'ok', '', '' }
end
local stored = redis.call('HGETALL', KEYS[1])
local now = clock()
local id, beaten, since, lasted, failed, n = 0, nil, { 0, 0, 0 }, { 0, 0, 0 }, {}, 0
local function unpack_row(row)
  id, beaten, since[1], since[2], since[3], lasted[1], lasted[2], lasted[3] = struct.unpack('<dddddddd', row)
end
local function answer()
  local row = struct.pack('<dddddddd', id, beaten, since[1], since[2], since[3], lasted[1], lasted[2], lasted[3])
  return row, { ARGV[1], now, 'ok', row, this_node or '' }
end
local of_node
for i = 1, #stored, 2 do
  local field, value = stored[i], stored[i + 1]
  if field == 'row' and #value == 64 then
    unpack_row(value)
  elseif field == 'node' then
    of_node = value
  elseif tonumber(value) and now - tonumber(value) <= 2 * tonumber(ARGV[3]) and tonumber(value) <= now then
    failed[field], n = value, n + 1
  elseif field ~= 'row' then
    redis.call('HDEL', KEYS[1], field)
  end
end
for i = 7, #ARGV do
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
local is_new = not beaten or now < beaten
local is_other = this_node and of_node ~= this_node
if (is_new or is_other) and #ARGV[5] == 64 and ARGV[6] == this_node then
  unpack_row(ARGV[5])
  is_new, is_other = now < beaten, now - beaten > Gap.LEVELS[1]
end
if is_new or is_other then
  id = math.max(beaten and id + 1 or 0, now)
  beaten, since, lasted = now, { now, now, now }, { 0, 0, 0 }
  if is_new then
    -- Due times may be in the future by more than is possible. Every process visits every group.
    redis.pcall('ZREM', KEYS[2], '')
  end
elseif of_node ~= (this_node or of_node) then
  -- Carried on from another slot of the node.
  beaten = now
elseif now - beaten >= HALF then
  for level = 1, 3 do
    if now - beaten > Gap.LEVELS[level] then
      since[level], lasted[level] = now, now - beaten
    end
  end
  beaten = now
elseif not too_many then
  local _, unchanged = answer()
  return unchanged
end
if too_many then
  since, lasted = { now, now, now }, { 0, 0, 0 }
end
local row, changed = answer()
redis.call('HSET', KEYS[1], 'row', row)
if this_node then
  redis.call('HSET', KEYS[1], 'node', this_node)
end
return changed
