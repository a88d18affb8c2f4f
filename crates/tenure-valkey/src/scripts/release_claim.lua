-- KEYS 12: the claims of the registry. ARGV 8..: member, term, registry, key.
-- Returns the reason why the tenure may not act, or ''; and the other owner of the key, or ''.
local CLAIMS = KEYS[12]
local member, term, registry, key = ARGV[8], tonumber(ARGV[9]), ARGV[10], ARGV[11]
local tenure = member .. '@' .. text(term)

local reason, other = refusal(member, term), ''
if not reason then
  local owner = redis.call('HGET', CLAIMS, key)
  if owner == tenure then
    plan('HDEL', CLAIMS, key)
    plan('SREM', held_key(tenure), 'c/' .. registry .. '/' .. key)
  elseif owner then
    other = owner
  end
end
engage_brake()
commit()
return { NONCE, now, 'ok', reason or '', other }
