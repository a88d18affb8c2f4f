-- ARGV 8..: member, term, the lease, the number of the request. Returns 'removed', 'given' and the token, or 'nothing'.
-- Compares the tenure and the number of the request, and else does nothing: a client that asked again on another
-- connection keeps what it has.
local member, term, name, request = ARGV[8], tonumber(ARGV[9]), ARGV[10], ARGV[11]
local tenure = member .. '@' .. text(term)

local function withdraw(m)
  local waiter = Lease.waiter_of(name, tenure)
  if waiter and waiter.request == request then
    Lease.leave(waiter)
    return { 'removed' }
  end
  local s = Lease.load(name)
  local row = Lease.row_of(s, tenure)
  local last_of_gap = group.last_of_gap or tonumber(redis.call('HGET', META, 'last_of_gap') or 0)
  -- A lost tail may have held a later request for the same grant.
  if not row or row.request ~= request or tonumber(row.token) <= last_of_gap then
    return { 'nothing' }
  end
  Lease.drop(s, row)
  Lease.tell('lease_released', s, row, 'reason', row.revision > 0 and 'revoked' or 'given_back')
  m.revision = next_number()
  save_member(member, m)
  return { 'given', row.token }
end

local reason, m = refusal(member, term)
local answer = reason and { 'nothing' } or withdraw(m)
Lease.finish()
engage_brake()
commit()
return { NONCE, now, 'ok', unpack(answer) }
