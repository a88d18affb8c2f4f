-- Whether other programs' targets are paused. KEYS: their keys. ARGV 3: the field that says so. Answers for each what the
-- field holds, or '' where there is none or the key is no hash.
local now, said = clock(), {}
for i = 1, #KEYS do
  local value = redis.pcall('HGET', KEYS[i], ARGV[3])
  if type(value) == 'table' and not string.find(value.err or '', 'WRONGTYPE', 1, true) then
    return value
  end
  said[i] = type(value) == 'string' and value or ''
end
return { ARGV[1], now, 'ok', said }
