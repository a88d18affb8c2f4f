-- ARGV 8..: for each entry a provider, '' or the version to overwrite, its version, and the row or '' when it was
-- removed. Returns for each whether it was applied, the version that is stored now, and the standing of the tenure.
local TOMBSTONES, TOMBSTONES_AT = PREFIX .. 'tombstones', PREFIX .. 'tombstones:at'
local FIRST, EACH = 8, 4
local names, removed = {}, {}
for i = FIRST, #ARGV, EACH do
  names[#names + 1] = ARGV[i]
end
if #names > 0 then
  local there = redis.call('HMGET', PROVIDERS, unpack(names))
  local tombstones = redis.call('HMGET', TOMBSTONES, unpack(names))
  for i, name in ipairs(names) do
    rows[name] = unpack_row(there[i]) or false
    removed[name] = tonumber(string.match(tombstones[i] or '', '^(%d+) %d+$'))
  end
end

local function version_of(provider)
  local row = rows[provider]
  return row and row.version or removed[provider] or 0
end

local function take_over(provider, version, packed)
  local before = rows[provider]
  local after = packed ~= '' and unpack_row(packed) or false
  rows[provider] = after
  if after then
    plan('HSET', PROVIDERS, provider, packed)
    if removed[provider] then
      plan('HDEL', TOMBSTONES, provider)
      plan('ZREM', TOMBSTONES_AT, provider)
      removed[provider] = nil
    end
  else
    plan('HDEL', PROVIDERS, provider)
    plan('HSET', TOMBSTONES, provider, text(version) .. ' ' .. NOW)
    plan('ZADD', TOMBSTONES_AT, NOW, provider)
    removed[provider] = version
  end
  if before and after and before.active ~= after.active then
    event(after.active and 'provider_activated' or 'provider_deactivated', nil, 'to', provider)
  end
  local was = before and place_of(before, before.term > 0 and is_current(tenure_of(provider, before)))
  local is = after and place_of(after, after.term > 0 and is_current(tenure_of(provider, after)))
  move(provider, was or nil, is or nil, before and before.occupancy, after and after.occupancy)
  -- The ledger has applied the end, or names another tenure.
  if before and before.term > 0 and not (after and after.term == before.term) then
    local tenure = tenure_of(provider, before)
    if load_offlined(tenure) then
      unpend(tenure)
    end
  end
  roster.high = math.max(roster.high, version)
  note_change()
end

local outcomes = {}
for i, provider in ipairs(names) do
  local at = FIRST + EACH * (i - 1)
  local over, version, there = ARGV[at + 1], tonumber(ARGV[at + 2]), version_of(provider)
  local applied = false
  if over == '' then
    applied = there < version
  else
    applied = there == tonumber(over)
  end
  if applied then
    take_over(provider, version, ARGV[at + 3])
  end
  local standing = stand(provider, rows[provider])
  outcomes[i] = { applied and 1 or 0, version_of(provider), standing }
end
engage_brake()
commit()
return { NONCE, now, 'ok', outcomes }
