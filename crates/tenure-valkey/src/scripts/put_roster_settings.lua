-- ARGV 8, 9, 10: the version, the settings as stored: 'version capacity stale_after required snapshot', and '' or the
-- version to overwrite. Returns whether they were applied.
local version, over = tonumber(ARGV[8]), tonumber(ARGV[10])
local there = tonumber(string.match(redis.call('HGET', META, 'settings') or '', '^(%d+) %d+ %d+ [01] %d+$'))
local taken
if over then
  taken = (there or 0) == over
else
  taken = not there or there < version
end
if taken then
  plan('HSET', META, 'settings', ARGV[9])
  plan('HSET', META, 'retime', 'k')
  roster.settings = version
  note_change()
end
commit()
return { NONCE, now, 'ok', taken and 1 or 0 }
