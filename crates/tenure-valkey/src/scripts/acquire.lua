-- ARGV 8..: member, term, the number of places, '' or the number of a waiting request, its node and its longest wait,
-- the highest revision that the caller has seen; then leases. Returns '', for each lease 'g<token> <place> <generation>'
-- with ' <previous holder>' after it if there is one, 'k<token> <place> <generation>', 'h<free in> <holder>',
-- 'r<free in> <successor>', 'u<retry in> <cause>', 'd<places>', 'w<ahead> <until>' or 'f<waiting>', the tenure's
-- revision, its remaining time, its revision before and its ttl; or the reason why the tenure may not act, or 'target'
-- for a wait for a target.
local member, term, places = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10])
local tenure = member .. '@' .. text(term)
local request, node, within = ARGV[11] ~= '' and ARGV[11] or nil, ARGV[12], tonumber(ARGV[13]) or 0

local reason, m = refusal(member, term)
if reason then
  engage_brake()
  commit()
  return { NONCE, now, 'ok', reason }
end

Lease.compare(tonumber(ARGV[14]), m.revision)
local leases = {}
for i = 15, #ARGV do
  leases[#leases + 1] = ARGV[i]
end
if request and redis.call('HGET', PREFIX .. 'targets', leases[1]) then
  -- A fleet decides who works on a target.
  Lease.finish()
  engage_brake()
  commit()
  return { NONCE, now, 'ok', 'target' }
end
if request then
  Lease.confirm(node)
end
if #leases > 0 then
  Lease.preload(leases)
end

-- Grants a place that is not taken.
local function grant(s, place, waited)
  Lease.set_places(s, places)
  local waiter = Lease.waiter_of(s.name, tenure)
  local token, before = text(next_number()), s.at[place]
  if before then
    Lease.drop(s, before, true)
    lose(before.tenure)
  end
  if s.reserved[place] then
    Lease.reserve(s, place)
  end
  if waiter then
    if waiter.request ~= request then
      Lease.tell_replaced(waiter)
    end
    Lease.leave(waiter)
  end
  local row = Lease.add(s, place, tenure, token, request)
  m.revision = group.seq
  local result, told = 'g' .. token .. ' ' .. text(place) .. ' ' .. row.generation, nil
  if before then
    told = Lease.tell('lease_taken_over', s, row, 'from', before.tenure, 'reason', reason_of(before.tenure) or 'unknown')
    result = result .. ' ' .. before.tenure
  else
    told = Lease.tell('lease_granted', s, row)
  end
  if waited and request then
    told[#told + 1], told[#told + 2] = 'request', request
  end
  return result
end

-- The answer to the holder itself. The grant belongs to the newest request that asked for it.
local function keep(s)
  local own = Lease.row_of(s, tenure)
  if not own or own.revision > 0 or own.places ~= places then
    return nil
  end
  if own.request ~= request then
    own.request = request
    Lease.save(s, own)
  end
  return 'k' .. own.token .. ' ' .. text(own.place) .. ' ' .. own.generation
end

local function refused(first)
  if first.row then
    return 'h' .. text(first.wait) .. ' ' .. first.row.tenure
  end
  return 'r' .. text(first.wait) .. ' ' .. first.reservation.heir
end

-- The refusal of a free lease that others wait for.
local TURN = 1000000
local function after(waiter)
  return 'r' .. text(TURN) .. ' ' .. member_of(waiter.tenure)
end

-- The result when no place can be granted now: a place in the queue if the caller wants to wait.
local function not_granted(s, place, first, waiter)
  local unsettled = math.max(0, group.unsettled_until - now)
  if request and within > 0 then
    return Lease.join(s, tenure, places, request, node, within, unsettled > 0 and unsettled or first and first.wait or 0)
  elseif place and unsettled > 0 then
    return 'u' .. text(unsettled) .. ' ' .. CAUSES[group.cause]
  end
  return waiter and not (first and first.all) and after(waiter) or refused(first)
end

-- The refusal of a lease with another number of places, and of one that an operator released and that the caller has
-- not noticed.
local function refusal_of(s, first, waiter)
  local fixed = first and s.places or waiter and waiter.places
  if fixed and fixed ~= places then
    return places > 1 and 'd' .. text(fixed) or first and refused(first) or after(waiter)
  end
  local own = Lease.row_of(s, tenure)
  return own and 'h' .. text(Lease.wait_for(own)) .. ' ' .. tenure
end

local function outcome_of(name)
  local s = Lease.load(name)
  local result = keep(s)
  if result then
    return result
  end
  Lease.refresh(s)
  local waiter = Lease.serve_first(s)
  local own = Lease.waiter_of(name, tenure)
  local has_turn = own and own.place and now < own.reserved and now >= group.unsettled_until
  if own and own.request == request and within == 0 and not has_turn then
    -- A wait of zero is over in the step that answers it.
    Lease.leave(own)
    waiter = Lease.serve_first(s)
  end
  local count, place, is_reserved, first = Lease.look(s, member, places)
  result = refusal_of(s, first, waiter)
  if result then
    return result
  end
  if has_turn then
    return grant(s, own.place, true)
  end
  local is_free = place and (is_reserved or not waiter)
  if is_free and now >= group.unsettled_until then
    return grant(s, place)
  end
  if first then
    first.all = count >= places
  end
  return not_granted(s, is_free and place, first, waiter)
end

local revision = m.revision
local outcomes = {}
for i, lease in ipairs(leases) do
  outcomes[i] = outcome_of(lease)
end
if m.revision ~= revision then
  save_member(member, m)
end
Lease.finish()
engage_brake()
commit()
return { NONCE, now, 'ok', '', outcomes, m.revision, free_in(tenure, m), revision, m.ttl }
