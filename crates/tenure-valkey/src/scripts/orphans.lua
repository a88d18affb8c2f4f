-- ARGV 3, 4: the minimum overdue time, the limit. Returns the index entries that may be orphans, in order: name, and
-- record or ''.
local latest = now - tonumber(ARGV[3])
local found = {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', PREFIX .. 'disconnected', '-inf', text(latest), 'LIMIT', 0, tonumber(ARGV[4]))) do
  local record = redis.pcall('HGET', PREFIX .. 'sess:' .. name, 'm')
  -- A key of a foreign type is not a record. A key in migration to another node must not read as missing.
  if type(record) == 'table' and record.err and not string.find(record.err, 'WRONGTYPE', 1, true) then
    error(record)
  end
  found[#found + 1], found[#found + 2] = name, type(record) == 'string' and record or ''
end
return { NONCE, now, 'ok', life(), found }
