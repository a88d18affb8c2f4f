-- ARGV 3, 4: for how long overdue, how many. The entries of the index that may be, in order: name, and record or ''.
local latest = now - tonumber(ARGV[3])
local found = {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', PREFIX .. 'disconnected', '-inf', text(latest), 'LIMIT', 0, tonumber(ARGV[4]))) do
  local record = redis.pcall('HGET', PREFIX .. 'sess:' .. name, 'm')
  -- A key of a foreign type is no record. One that is on its way to another node must not read as one.
  if type(record) == 'table' and record.err and not string.find(record.err, 'WRONGTYPE', 1, true) then
    error(record)
  end
  found[#found + 1], found[#found + 2] = name, type(record) == 'string' and record or ''
end
return { NONCE, now, 'ok', life(), found }
