-- ARGV 8: 'take', then the task, the caller, how long the turn lasts, and how often the task is due; or 'end', then the
-- task, the holder, and '1' when it is done. Returns 'm' for the caller's turn, 'o' for another holder's or 'd' when it
-- is not due, and until when.
local what, task, who = ARGV[8], 'turn:' .. ARGV[9], ARGV[10]
-- 'until done holder'; 0 for unset.
local till, done, holder = string.match(redis.call('HGET', META, task) or '', '^(%d+) (%d+) (%S*)$')
till, done, holder = tonumber(till or 0), tonumber(done or 0), holder or ''
-- Times from a clock that has since fallen back are ignored.
if done > now then
  done = 0
end
local held = holder ~= '' and till > now and (what == 'end' or till <= now + tonumber(ARGV[11]))

local function keep(new_till, new_done, new_holder)
  plan('HSET', META, task, text(new_till) .. ' ' .. text(new_done) .. ' ' .. new_holder)
end

local answer, at = 'm', 0
if what == 'end' then
  if holder == who then
    keep(0, ARGV[11] == '1' and now or done, '')
  end
elseif held and holder ~= who then
  answer, at = 'o', till
elseif not held and done > 0 and done + tonumber(ARGV[12]) > now then
  answer, at = 'd', done + tonumber(ARGV[12])
else
  at = now + tonumber(ARGV[11])
  keep(at, done, who)
end
commit()
return { NONCE, now, 'ok', answer, at }
