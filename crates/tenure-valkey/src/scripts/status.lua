-- The raw state of a group; what it means is worked out by whoever asked. Also the end of `tick.lua`.
local fields = redis.call('HMGET', META, 'tick', 'resumed', 'min_ttl', 'events', 'unsettled_until', 'unsettled_cause',
  'brake_since', 'brake_until')
local function first(list)
  return redis.call('ZRANGE', PREFIX .. list, 0, 0, 'WITHSCORES')[2] or false
end
return { NONCE, now, 'ok', fields, redis.call('HLEN', PREFIX .. 'members'), redis.call('ZCARD', PREFIX .. 'lapses'),
  first('due'), first('releasing'), first('releasing:lapsed'),
  redis.call('ZCARD', PREFIX .. 'releasing'), redis.call('ZCARD', PREFIX .. 'releasing:lapsed') }
