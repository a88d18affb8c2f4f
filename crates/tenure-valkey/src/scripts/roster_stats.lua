-- Returns the stamp; how many providers are available, busy, and online though deactivated, and how many due ones were
-- not checked; how many rows there are, and how many of them are deactivated; and how many ended tenures are pending
-- for the ledger.
local deactivated = redis.call('SCARD', PREFIX .. 'inactive') + redis.call('SCARD', PREFIX .. 'barred')
local counts, left = count_online()
return { NONCE, now, 'ok', stamp(), counts.free, counts.busy, counts.barred, left, redis.call('HLEN', PROVIDERS), deactivated,
  redis.call('ZCARD', PREFIX .. 'offline') + redis.call('ZCARD', PREFIX .. 'offline:lapsed') }
