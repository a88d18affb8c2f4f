-- KEYS 12: the claims of the registry. ARGV 8..: member, term, registry, '1' for if-absent, keys.
-- Returns '', for each key 'n', 'k', 'm<previous owner>' or 'h<owner>', and the tenure's revision, now and before; or
-- the reason why the tenure may not act.
local CLAIMS = KEYS[12]
local member, term, registry, if_absent = ARGV[8], tonumber(ARGV[9]), ARGV[10], ARGV[11] == '1'
local tenure = member .. '@' .. text(term)

local reason, m = refusal(member, term)
if reason then
  engage_brake()
  commit()
  return { NONCE, now, 'ok', reason }
end

local before, keys, owner = m.revision, {}, {}
for i = 12, #ARGV do
  keys[#keys + 1] = ARGV[i]
end
for i, value in ipairs(#keys > 0 and redis.call('HMGET', CLAIMS, unpack(keys)) or {}) do
  owner[keys[i]] = value
end

-- Whether a tenure is alive, cached by tenure. A tenure past its end is ended.
local alive = {}
local function is_alive(other)
  if alive[other] == nil then
    local m = not ended_now[other] and load_tenure(other)
    alive[other] = m and now < end_of(m) or false
    if m and not alive[other] then
      finish(member_of(other), m, 'lapsed')
    end
  end
  return alive[other]
end

local outcomes, gained = {}, false
for i, key in ipairs(keys) do
  local current = owner[key]
  local holding = 'c/' .. registry .. '/' .. key
  if current == tenure then
    outcomes[i] = 'k'
  elseif current and member_of(current) ~= member and is_alive(current) and if_absent then
    outcomes[i] = 'h' .. current
  else
    if current then
      plan('SREM', held_key(current), holding)
      lose(current)
      outcomes[i] = 'm' .. current
    else
      outcomes[i] = 'n'
    end
    plan('HSET', CLAIMS, key, tenure)
    plan('SADD', held_key(tenure), holding)
    owner[key], gained = tenure, true
  end
end
if gained then
  m.revision = next_number()
  save_member(member, m)
end
engage_brake()
commit()
return { NONCE, now, 'ok', '', outcomes, m.revision, before }
