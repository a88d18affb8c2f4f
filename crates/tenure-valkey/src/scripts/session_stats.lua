-- When the store last resumed serving, as it noticed; how many sessions there are, how many are away, and how many of those
-- are orphans by the index.
local resumed = life()
return { NONCE, now, 'ok', resumed, resumed[2] or 0, redis.call('ZCARD', PREFIX .. 'sessions'), redis.call('ZCARD', PREFIX .. 'disconnected'),
  redis.call('ZCOUNT', PREFIX .. 'disconnected', '-inf', text(now)) }
