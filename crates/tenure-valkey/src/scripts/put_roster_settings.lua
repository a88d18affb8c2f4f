-- ARGV 8, 9: the version, and the settings as they are kept: 'version capacity stale_after required snapshot'. Answers
-- whether they were newer.
local version = tonumber(ARGV[8])
local there = tonumber(string.match(redis.call('HGET', META, 'settings') or '', '^(%d+) %d+ %d+ [01] %d+$'))
local newer = not there or there < version
if newer then
  plan('HSET', META, 'settings', ARGV[9])
  plan('HSET', META, 'retime', 'k')
  roster.settings = version
  note_change()
end
commit()
return { NONCE, now, 'ok', newer and 1 or 0 }
