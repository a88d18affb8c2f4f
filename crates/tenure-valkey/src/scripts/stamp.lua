-- Answers the stamp, and the settings as they are kept.
return { NONCE, now, 'ok', stamp(), redis.call('HGET', META, 'settings') }
