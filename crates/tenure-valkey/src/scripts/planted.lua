-- Defects for debug builds that are told to have one; see `planted.rs`. Each begins with `---- name`, and with `in script` if
-- it is only for one; what is there follows, and after `---->` what takes its place.
---- lease-early
  return row.limit > 0 and math.min(wait,
---->
  wait = math.max(0, wait - 1500000)
  return row.limit > 0 and math.min(wait,
---- token-falls in acquire
local token, before = text(next_number()),
---->
local token, before = text(next_number() % 1000003 + 1),
---- release-any-token in release_leases
if row and row.token == token then
---->
if row then
---- beat-revives in beat
replies[i] = reason and REASON[reason] or unknown(term_of(tenure))
---->
if reason then
  plan('HSET', ALIVE, tenure, pack_life(now + 2000000, 2000000, 0, 0))
  replies[i] = 2000000
else
  replies[i] = unknown(term_of(tenure))
end
---- claim-by-ended in claim
local reason, m = refusal(member, term)
---->
local reason, m = refusal(member, term)
if reason and reason ~= 'unknown' then
  reason, m = nil, { term = term, deadline = now, ttl = 1000000, revision = 0 }
end
---- evicted-twice
shown[i] = count[1] .. '=' .. text(count[2])
---->
shown[i] = count[1] .. '=' .. text(2 * count[2])
---- superseded-at-once
if reason ~= 'superseded' and reason ~= 'expelled' and
---->
if reason ~= 'expelled' and
---- gap-off
  if at then
    unsettle_from(
---->
  if false then
    unsettle_from(
---- claims-left
if owners[i] == tenure then
---->
if owners[i] == tenure and not string.match(keys[i], '0$') then
---- ghost-shown in claims_by_key
found[i][3] = packed
---->
found[i][3] = packed or struct.pack('<dddd', tonumber(string.match(owners[i], '@(%d+)$')), now + 5000000, 5000000, 0)
---- revoked-at-once
  return row.limit > 0 and math.min(wait, math.max(0, row.limit - now)) or wait
---->
  return row.limit > 0 and 0 or wait
---- one-more-holder
  for place = 0, math.max(s.places, places) - 1 do
---->
  places = places > 1 and places + 1 or places
  for place = 0, math.max(s.places, places) - 1 do
