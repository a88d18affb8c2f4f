-- ARGV 3, 4: the first id wanted, how many. Answers the newest event's number, the oldest kept id, and the events.
local stream = PREFIX .. 'events'
local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)
return { NONCE, now, 'ok', redis.call('HGET', META, 'events'), oldest[1] and oldest[1][1] or false,
  redis.call('XRANGE', stream, ARGV[3], '+', 'COUNT', tonumber(ARGV[4])) }
