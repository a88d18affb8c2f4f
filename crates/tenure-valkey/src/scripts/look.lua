-- ARGV 3..: providers. Answers the stamp, and for each nothing, or its row, how its tenure stands (0 offline, 1 alive, 2 ended,
-- 3 unknown) and when it was heard of.
local providers = {}
for i = 3, #ARGV do
  providers[#providers + 1] = ARGV[i]
end
local function is_pending(tenure)
  local record = redis.call('HGET', PREFIX .. 'offlined', tenure)
  return record and record ~= 'done'
end
local seen = {}
for i, row in ipairs(#providers > 0 and rows_of(providers) or {}) do
  if not row then
    seen[i] = 0
  elseif not row.tenure then
    seen[i] = { row.packed, 0, 0 }
  elseif row.life and lives(row.life) then
    local deadline, ttl = unpack_life(row.life)
    seen[i] = { row.packed, 1, math.max(0, deadline - ttl) }
  elseif row.life or redis.call('HGET', PREFIX .. 'ended', row.tenure) or is_pending(row.tenure) then
    seen[i] = { row.packed, 2, 0 }
  else
    seen[i] = { row.packed, 3, 0 }
  end
end
return { NONCE, now, 'ok', stamp(), seen }
