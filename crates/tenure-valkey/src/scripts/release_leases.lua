-- ARGV 8..: member, term, the successor or '', the highest revision that the caller has seen, then each lease and its
-- token. Returns '', for each lease 'f' when it is free, 'r' when it is reserved for the successor or 'n<holder>' when
-- another tenure holds it, and the tenure's revision, now and before; or the reason why the tenure may not act.
local member, term, heir = ARGV[8], tonumber(ARGV[9]), ARGV[10]
local tenure = member .. '@' .. text(term)

local reason, m = refusal(member, term)
if reason then
  engage_brake()
  commit()
  return { NONCE, now, 'ok', reason }
end
local before = m.revision
Lease.compare(tonumber(ARGV[11]), before)

-- A lease is reserved only for another live member.
local successor
if heir == member then
  heir = ''
elseif heir ~= '' then
  successor = load_member(heir)
  if successor and now >= end_of(successor) then
    finish(heir, successor, 'lapsed')
    successor = nil
  end
  heir = successor and heir or ''
end

local leases = {}
for i = 12, #ARGV, 2 do
  leases[#leases + 1] = ARGV[i]
end
if #leases > 0 then
  Lease.preload(leases)
end

-- Another holder of a lease, that of the lowest place.
local function other_holder(s)
  Lease.fill(s)
  for place = 0, s.places - 1 do
    if s.at[place] then
      return s.at[place].tenure
    end
  end
end

local function give_up(s, row)
  if row.revision > 0 then
    -- What an operator released cannot be handed off.
    Lease.free_revoked(s, row)
    return 'f'
  end
  Lease.drop(s, row)
  if heir == '' then
    Lease.tell('lease_released', s, row, 'reason', 'released')
    return 'f'
  end
  Lease.reserve(s, row.place, now + RESERVATION, heir)
  local waiter = Lease.waiter_of(s.name, heir .. '@' .. text(successor.term))
  if waiter then
    Lease.tell_turn(waiter)
  end
  Lease.tell('lease_released', s, row, 'reason', 'handed_off', 'to', heir)
  return 'r'
end

local outcomes, changed = {}, false
for i, name in ipairs(leases) do
  local s = Lease.load(name)
  local row, token = Lease.row_of(s, tenure), ARGV[11 + 2 * i]
  if row and row.token == token then
    outcomes[i], changed = give_up(s, row), true
  else
    local other = row and tenure or other_holder(s)
    outcomes[i] = other and 'n' .. other or 'f'
  end
end
if changed then
  m.revision = next_number()
  save_member(member, m)
end
Lease.finish()
engage_brake()
commit()
return { NONCE, now, 'ok', '', outcomes, m.revision, before }
