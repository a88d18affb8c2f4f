-- What other programs' targets say about being paused. KEYS: their keys. ARGV 3: the field that says so. ARGV 4: the longest
-- text that is read. Answers for each 'h' and the field of a hash, 't' and the whole text of a string, '?' for what has
-- neither, or '' where nothing is said.
local now, said = clock(), {}

local function denied(value)
  return type(value) == 'table' and not string.find(value.err or '', 'WRONGTYPE', 1, true)
end

local function of_text(key)
  local length = redis.pcall('STRLEN', key)
  if type(length) == 'table' or length > tonumber(ARGV[4]) then
    return denied(length) and length or '?'
  end
  return 't' .. (redis.call('GET', key) or '')
end

for i = 1, #KEYS do
  local value = redis.pcall('HGET', KEYS[i], ARGV[3])
  if type(value) == 'string' then
    value = 'h' .. value
  elseif type(value) == 'table' and not denied(value) then
    value = of_text(KEYS[i])
  end
  if denied(value) then
    return value
  end
  said[i] = value or ''
end
return { ARGV[1], now, 'ok', said }
