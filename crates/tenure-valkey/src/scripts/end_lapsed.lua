-- ARGV 8: the limit. ARGV 9: how far ahead to look. ARGV 10: '1' when a daemon refuses beats; recorded once no member is
-- past its end. Returns when the next member may be due, and the lapsed tenures.
local limit = tonumber(ARGV[8])
if not stored[1] and redis.call('HGET', GONE, 'seq') then
  -- Another process has forgotten the group since the tick; a sweep does not recreate it.
  return { NONCE, now, 'ok', false, {} }
end

local places = not fell and redis.call('HGET', META, 'fell')
if places then
  return rescore(places)
end

local due = redis.call('ZRANGEBYSCORE', DUE, '-inf', text(now + tonumber(ARGV[9])), 'LIMIT', 0, limit)
local more = #due == limit and redis.call('ZCOUNT', DUE, '-inf', NOW) > limit
local terms, tenures = {}, {}
for i, packed in ipairs(#due > 0 and redis.call('HMGET', MEMBERS, unpack(due)) or {}) do
  terms[i] = packed and struct.unpack('<d', packed)
  tenures[i] = terms[i] and due[i] .. '@' .. text(terms[i]) or due[i]
end
local rows = #due > 0 and redis.call('HMGET', ALIVE, unpack(tenures)) or {}
local ended, later, n, given = {}, {}, 0, given_at()
for i, member in ipairs(due) do
  if rows[i] then
    local deadline, ttl = unpack_life(rows[i])
    local last = end_since(given, deadline, ttl)
    if now >= last then
      ended[#ended + 1] = finish(member, unpack_tenure(terms[i], rows[i]), 'lapsed')
    else
      -- The index is lazy: the member has beaten since.
      later[n + 1], later[n + 2] = text(last), member
      n = n + 2
    end
  else
    plan('ZREM', DUE, member)
    if terms[i] then
      -- The entry in ALIVE is lost, so no beat can renew the tenure.
      plan('HDEL', MEMBERS, member)
    end
  end
end
if n > 0 then
  plan_whole('ZADD', DUE, later)
end

-- This index holds only records of tenures that hold nothing.
local old = redis.call('ZRANGEBYSCORE', FORGET, '-inf', NOW, 'LIMIT', 0, limit)
if #old > 0 then
  plan_whole('HDEL', ENDED, old)
  plan_whole('ZREM', FORGET, old)
end
Lease.forget_reservations(limit)
Lease.forget_waiters(limit)
Lease.free_overdue(limit)
if ARGV[10] == '1' and not more then
  note_refusal()
end
Lease.finish()
engage_brake()
commit()
visited()
return { NONCE, now, 'ok', redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2] or false, ended }
