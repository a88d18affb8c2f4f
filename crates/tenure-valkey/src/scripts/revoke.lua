-- ARGV 8..: the lease; 'holder', 'token' or 'any'; the member or the token. Returns 'free', 'many' and the number of
-- holders, 'other' and a holder, or 'ok', the tenure, its token, '1' when the holder can notice, and how long until the
-- place is free.
local s, by, named = Lease.load(ARGV[8]), ARGV[9], ARGV[10]
Lease.refresh(s)

local taken = {}
for place = 0, s.places - 1 do
  local row = s.at[place]
  if row and Lease.wait_for(row) > 0 then
    taken[#taken + 1] = row
  end
end

-- The grant of a member. An earlier tenure of the member may hold another place until its last deadline.
local function grant_of(member)
  local found, is_current
  for _, row in ipairs(taken) do
    if member_of(row.tenure) == member then
      local current = Lease.current(row.tenure) ~= nil
      if not found or current and not is_current
        or current == is_current and tonumber(row.token) > tonumber(found.token) then
        found, is_current = row, current
      end
    end
  end
  return found
end

local function named_grant()
  if by == 'holder' then
    return grant_of(named)
  end
  for _, row in ipairs(taken) do
    if by == 'any' or row.token == named then
      return row
    end
  end
end

-- Marks a grant as released. That of an ended tenure ends by itself.
local function revoke(row)
  local m = Lease.current(row.tenure)
  if not m or row.revision > 0 then
    return
  end
  row.revision = next_number()
  row.limit = m.marks % 2 == NAMED and end_of(m) or 0
  Lease.save(s, row)
  if row.limit > 0 then
    Lease.index_limit(s, row)
  end
  plan('SADD', Lease.revoked_key(row.tenure), s.name)
  m.revision, m.marks = row.revision, m.marks % 2 + REVOKED
  save_member(member_of(row.tenure), m)
  Lease.tell('lease_revoked', s, row, 'reason', 'operator')
end

local answer = { 'free' }
if by == 'any' and #taken > 1 then
  answer = { 'many', #taken }
elseif #taken > 0 then
  local row = named_grant()
  if row then
    revoke(row)
    answer = { 'ok', row.tenure, row.token, row.limit > 0 and 1 or 0, Lease.wait_for(row) }
  else
    answer = { 'other', taken[1].tenure }
  end
end
Lease.finish()
engage_brake()
commit()
return { NONCE, now, 'ok', unpack(answer) }
