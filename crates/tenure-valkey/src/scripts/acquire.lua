-- ARGV 8..: member, term, leases. Returns '', for each lease 'g<token>' or 'g<token> <previous holder>', 'k<token>',
-- 'h<free in> <holder>', 'r<free in> <successor>' or 'u<retry in> <cause>', the tenure's revision, its remaining time,
-- and its revision before; or the reason why the tenure may not act.
local member, term = ARGV[8], tonumber(ARGV[9])
local tenure = member .. '@' .. text(term)

local reason, m = refusal(member, term)
if reason then
  engage_brake()
  commit()
  return { NONCE, now, 'ok', reason }
end

local leases, held, reserved = {}, {}, {}
for i = 10, #ARGV do
  leases[#leases + 1] = ARGV[i]
end
if #leases > 0 then
  local holders = redis.call('HMGET', LEASES, unpack(leases))
  local waiting = redis.call('HMGET', RESERVED, unpack(leases))
  for i, lease in ipairs(leases) do
    held[lease], reserved[lease] = holders[i], waiting[i]
  end
end

-- How long until another tenure's lease is free, by tenure; false when it is free now. A tenure past its end is ended.
local waits = {}
local function wait_for(holder)
  if waits[holder] == nil then
    local current = not ended_now[holder] and load_tenure(holder) or nil
    if current and now >= end_of(current) then
      finish(member_of(holder), current, 'lapsed')
      current = nil
    end
    local wait = free_in(holder, current)
    waits[holder] = (current or wait > 0) and wait
  end
  return waits[holder]
end

local function grant(lease, from)
  local token = text(next_number())
  if from then
    plan('SREM', leased_key(from), lease)
    lose(from)
  end
  if reserved[lease] then
    plan('HDEL', RESERVED, lease)
    plan('ZREM', RESERVATIONS, lease)
    reserved[lease] = nil
  end
  held[lease] = tenure .. ' ' .. token
  plan('HSET', LEASES, lease, held[lease])
  plan('SADD', leased_key(tenure), lease)
  m.revision = group.seq
  if from then
    event('lease_taken_over', tenure, 'lease', lease, 'token', token, 'from', from, 'reason', reason_of(from) or 'unknown')
    return 'g' .. token .. ' ' .. from
  end
  event('lease_granted', tenure, 'lease', lease, 'token', token)
  return 'g' .. token
end

local revision = m.revision
local function outcome_of(lease)
  local holder, token = string.match(held[lease] or '', '^(%S+) (%d+)$')
  if held[lease] and not holder then
    error({ err = 'ERR user_script: a lease in an unknown format' })
  end
  if holder == tenure then
    return 'k' .. token
  end
  local wait = holder and wait_for(holder)
  if wait then
    return 'h' .. text(wait) .. ' ' .. holder
  end
  local till, heir = string.match(reserved[lease] or '', '^(%d+) (%S+)$')
  till = tonumber(till or 0)
  -- A later end was computed by a clock that has since fallen back; it is over.
  if now < till and till <= now + RESERVATION and heir ~= member then
    return 'r' .. text(till - now) .. ' ' .. heir
  end
  if now < group.unsettled_until then
    return 'u' .. text(group.unsettled_until - now) .. ' ' .. CAUSES[group.cause]
  end
  return grant(lease, holder)
end

local outcomes = {}
for i, lease in ipairs(leases) do
  outcomes[i] = outcome_of(lease)
end
if m.revision ~= revision then
  save_member(member, m)
end
engage_brake()
commit()
return { NONCE, now, 'ok', '', outcomes, m.revision, free_in(tenure, m), revision }
