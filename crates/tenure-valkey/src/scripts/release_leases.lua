-- ARGV 8..: member, term, the successor or '', then each lease and its token. Returns '', for each lease 'f' when it is
-- free, 'r' when it is reserved for the successor or 'n<holder>' when another tenure holds it, and the tenure's
-- revision, now and before; or the reason why the tenure may not act.
local member, term, heir = ARGV[8], tonumber(ARGV[9]), ARGV[10]
local tenure = member .. '@' .. text(term)

local reason, m = refusal(member, term)
if reason then
  engage_brake()
  commit()
  return { NONCE, now, 'ok', reason }
end
local before = m.revision

-- A lease is reserved only for another live member.
if heir == member then
  heir = ''
elseif heir ~= '' then
  local successor = load_member(heir)
  if successor and now >= end_of(successor) then
    finish(heir, successor, 'lapsed')
    successor = nil
  end
  heir = successor and heir or ''
end

local leases, held = {}, {}
for i = 11, #ARGV, 2 do
  leases[#leases + 1] = ARGV[i]
end
for i, value in ipairs(#leases > 0 and redis.call('HMGET', LEASES, unpack(leases)) or {}) do
  held[leases[i]] = value
end

local until_then = text(now + RESERVATION)
local outcomes, changed = {}, false
for i, lease in ipairs(leases) do
  local value, token = held[lease], ARGV[10 + 2 * i]
  if not value then
    outcomes[i] = 'f'
  elseif value ~= tenure .. ' ' .. token then
    outcomes[i] = 'n' .. (string.match(value, '^%S+') or '')
  else
    plan('HDEL', LEASES, lease)
    plan('SREM', leased_key(tenure), lease)
    held[lease], changed = false, true
    if heir ~= '' then
      plan('HSET', RESERVED, lease, until_then .. ' ' .. heir)
      plan('ZADD', RESERVATIONS, until_then, lease)
      event('lease_released', tenure, 'lease', lease, 'token', token, 'reason', 'handed_off', 'to', heir)
      outcomes[i] = 'r'
    else
      event('lease_released', tenure, 'lease', lease, 'token', token, 'reason', 'released')
      outcomes[i] = 'f'
    end
  end
end
if changed then
  m.revision = next_number()
  save_member(member, m)
end
engage_brake()
commit()
return { NONCE, now, 'ok', '', outcomes, m.revision, before }
