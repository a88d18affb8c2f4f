-- Answers the stamp; how many are available, busy and online though deactivated, and how many of the due were not looked at; how
-- many rows there are, and how many of them are deactivated; and how many ended tenures the ledger has to follow.
local deactivated = redis.call('SCARD', PREFIX .. 'inactive') + redis.call('SCARD', PREFIX .. 'barred')
local counts, left = count_online()
return { NONCE, now, 'ok', stamp(), counts.free, counts.busy, counts.barred, left, redis.call('HLEN', PROVIDERS), deactivated,
  redis.call('ZCARD', PREFIX .. 'offline') + redis.call('ZCARD', PREFIX .. 'offline:lapsed') }
