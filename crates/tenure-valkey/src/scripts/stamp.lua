-- Returns the stamp, and the settings as stored.
return { NONCE, now, 'ok', stamp(), redis.call('HGET', META, 'settings') }
