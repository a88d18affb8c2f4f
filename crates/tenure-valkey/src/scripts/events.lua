-- ARGV 3..5: 'after' or 'before', the first number wanted, the limit. Returns the number of the newest event, the id of
-- the oldest entry, and the entries in the order read.
local stream = PREFIX .. 'events'
local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)
local entries
if ARGV[3] == 'before' then
  entries = redis.call('XREVRANGE', stream, ARGV[4], '-', 'COUNT', ARGV[5])
else
  entries = redis.call('XRANGE', stream, ARGV[4], '+', 'COUNT', ARGV[5])
end
return { NONCE, now, 'ok', redis.call('HGET', META, 'events'), oldest[1] and oldest[1][1] or false, entries }
