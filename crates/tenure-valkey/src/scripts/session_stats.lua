-- Returns when the store last resumed serving, as recorded; the number of sessions, of disconnected sessions, and of
-- orphans by the index.
local resumed = life()
return { NONCE, now, 'ok', resumed, resumed[2] or 0, redis.call('ZCARD', PREFIX .. 'sessions'), redis.call('ZCARD', PREFIX .. 'disconnected'),
  redis.call('ZCOUNT', PREFIX .. 'disconnected', '-inf', text(now)) }
