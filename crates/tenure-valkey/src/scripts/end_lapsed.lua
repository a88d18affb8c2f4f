-- ARGV 8: at most how many. Answers whether more may be due, and the tenures that lapsed.
local limit = tonumber(ARGV[8])

local due = redis.call('ZRANGEBYSCORE', DUE, '-inf', NOW, 'LIMIT', 0, limit + 1)
local more = #due > limit
if more then
  due[#due] = nil
end
local packed = #due > 0 and redis.call('HMGET', MEMBERS, unpack(due)) or {}
local ended = {}
for i, member in ipairs(due) do
  if packed[i] then
    local m = unpack_member(packed[i])
    local last = end_of(m)
    if now >= last then
      ended[#ended + 1] = finish(member, m, 'lapsed')
    else
      -- The index is lazy: the member has beaten since.
      plan('ZADD', DUE, text(last), member)
    end
  else
    plan('ZREM', DUE, member)
  end
end

-- Only records of tenures that hold nothing are in this index.
local old = redis.call('ZRANGEBYSCORE', FORGET, '-inf', NOW, 'LIMIT', 0, limit)
if #old > 0 then
  plan_whole('HDEL', ENDED, unpack(old))
  plan_whole('ZREM', FORGET, unpack(old))
end
-- Reservations whose time is over.
local over = redis.call('ZRANGEBYSCORE', RESERVATIONS, '-inf', NOW, 'LIMIT', 0, limit)
if #over > 0 then
  plan_whole('HDEL', RESERVED, unpack(over))
  plan_whole('ZREM', RESERVATIONS, unpack(over))
end
engage_brake()
commit()
return { NONCE, now, 'ok', more and 1 or 0, ended }
