-- ARGV 8..: member, ttl, labels as JSON or ''. Returns the term, and the term it superseded or 0.
local member, ttl, labels = ARGV[8], tonumber(ARGV[9]), ARGV[10]

local current = load_member(member)
local others = count_members() - (current and 1 or 0)
local was_lapsed = count_lapses() > 0 and redis.call('ZSCORE', LAPSES, member)
local alone = others == 0 and count_lapses() == 0
local superseded = 0
if current then
  if now >= end_of(current) then
    finish(member, current, 'lapsed')
  else
    finish(member, current, 'superseded')
    superseded = current.term
  end
end

next_number()
if alone then
  group.min_ttl, group.max_ttl = 0, 0
end
note_ttl(ttl)
present = present + 1
plan('HSET', MEMBERS, member, struct.pack('<d', group.seq))
Lease.begun[member] = { term = group.seq, deadline = now + ttl, ttl = ttl, revision = 0 }
save_member(member, Lease.begun[member])
if labels ~= '' then
  plan('HSET', LABELS, member, labels)
end
plan('ZADD', DUE, text(now + ttl), member)
event('joined', member .. '@' .. text(group.seq))

Lease.finish()
-- A member that joined again no longer counts as lapsed.
local gone = lapses_added
if was_lapsed and lapses_added == 0 then
  if tonumber(was_lapsed) >= now - group.max_ttl or group.brake_until ~= 0 then
    gone = 1
  end
end
engage_brake(gone)
if was_lapsed or lapses_added > 0 then
  plan('ZREM', LAPSES, member)
end
commit()
return { NONCE, now, 'ok', group.seq, superseded }
