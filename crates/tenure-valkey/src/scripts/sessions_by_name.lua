-- ARGV 3: '' or an alias of the wanted session; then names. Returns how many names were read (fewer when the reply gets
-- large), the packed values of the tenures met, and for each existing session: name, record, alias, fields, and its
-- connections as pairs of tenure index and count.
local LONG, MANY = 1048576, 1000
local names = {}
for i = 4, #ARGV do
  names[#names + 1] = ARGV[i]
end
if ARGV[3] ~= '' then
  names[1] = redis.call('HGET', PREFIX .. 'aliases', ARGV[3]) or nil
end

local tenures, place, length, found, looked = {}, {}, 0, {}, 0
local function count_connections(name)
  local counts, at = {}, {}
  for _, value in ipairs(redis.call('HVALS', PREFIX .. 'conns:' .. name)) do
    local tenure = string.match(value, '^(%S+) ') or ''
    if not place[tenure] then
      tenures[#tenures + 1] = tenure
      place[tenure] = #tenures
    end
    if not at[tenure] then
      counts[#counts + 1], counts[#counts + 2] = place[tenure] - 1, 0
      at[tenure] = #counts
    end
    counts[at[tenure]] = counts[at[tenure]] + 1
  end
  return counts
end
for _, name in ipairs(names) do
  if length > LONG or #tenures > MANY then
    break
  end
  looked = looked + 1
  local row, record, alias, fields = redis.call('HGETALL', PREFIX .. 'sess:' .. name), nil, false, {}
  for i = 1, #row, 2 do
    local field, value = row[i], row[i + 1]
    length = length + #value
    if field == 'm' then
      record = value
    elseif field == 'a' then
      alias = value
    elseif string.sub(field, 1, 2) == 'd:' then
      fields[#fields + 1], fields[#fields + 2] = string.sub(field, 3), value
    end
  end
  if record and (ARGV[3] == '' or alias == ARGV[3]) then
    found[#found + 1] = { name, record, alias, fields, count_connections(name) }
  end
end
local packed = #tenures > 0 and current_of(tenures) or {}
return { NONCE, now, 'ok', life(), looked, packed, found }
