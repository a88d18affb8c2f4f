-- The store's time in µs.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
-- Reads fields of other programs' keys. KEYS: the keys. ARGV[3]: the longest string to read. ARGV[4]: the weight of a
-- reply, in bytes. ARGV[5..]: the field names.
-- Returns for the first keys, as many as the weight allows and at least one, 'h' and the fields of a hash ('' for a
-- missing one), 't' and the text of a string, or '?' for another type or a longer text or field.
local now, said = clock(), {}
local longest, weight = tonumber(ARGV[3]), tonumber(ARGV[4])

local function denied(value)
  return type(value) == 'table' and not string.find(value.err or '', 'WRONGTYPE', 1, true)
end

local function of_text(key)
  local length = redis.pcall('STRLEN', key)
  if type(length) == 'table' or length > longest then
    return denied(length) and length or { '?' }
  end
  weight = weight - length
  return { 't', redis.call('GET', key) or '' }
end

local function of_key(key)
  local values = { 'h' }
  for i = 5, #ARGV do
    -- Where HSTRLEN is denied, the field is fetched.
    local length = redis.pcall('HSTRLEN', key, ARGV[i])
    if type(length) == 'number' and length > longest then
      return { '?' }
    end
    local value = redis.pcall('HGET', key, ARGV[i])
    if type(value) == 'table' then
      return denied(value) and value or of_text(key)
    end
    values[#values + 1] = value or ''
    weight = weight - #values[#values]
  end
  return values
end

for i = 1, #KEYS do
  if weight <= 0 then
    break
  end
  local value = of_key(KEYS[i])
  if value.err then
    return value
  end
  said[i] = value
end
return { ARGV[1], now, 'ok', said }
