-- ARGV 8..: the ttl for a group without settings, '1' to extend live tenures, providers. Returns for each the term of
-- its tenure, and whether that is new.
local ttl, beat = ttl_of(redis.call('HGET', META, 'settings')) or tonumber(ARGV[8]), ARGV[9] == '1'

-- The providers of this step, and those that return: recorded as lapsed before it, or ended in it.
local seated, back, were_lapsed = {}, 0, {}
local function begin(provider, alone)
  local m = { term = next_number(), deadline = now + ttl, ttl = ttl, revision = 0 }
  if alone then
    group.min_ttl, group.max_ttl = 0, 0
  end
  note_ttl(ttl)
  count_members()
  present = present + 1
  plan('HSET', MEMBERS, provider, struct.pack('<d', m.term))
  save_member(provider, m)
  plan('ZADD', DUE, text(m.deadline), provider)
  event('joined', provider .. '@' .. text(m.term))
  return m
end

local function seat(provider)
  local m = seated[provider] or load_member(provider)
  local alone = count_members() - (m and 1 or 0) == 0 and count_lapses() + lapses_added - back == 0
  local lapsed_at = not m and count_lapses() > 0 and redis.call('ZSCORE', LAPSES, provider)
  if m and now >= end_of(m) then
    finish(provider, m, 'lapsed')
    m, lapsed_at = nil, NOW
  end
  if m then
    if beat then
      m.deadline, m.marks = now + m.ttl, without_name(m.marks or 0)
      save_member(provider, m)
    end
    seated[provider] = m
    return { m.term, 0 }
  end
  if lapsed_at then
    back = back + 1
    were_lapsed[#were_lapsed + 1] = { provider, tonumber(lapsed_at) }
  end
  seated[provider] = begin(provider, alone)
  return { seated[provider].term, 1 }
end

local answers = {}
for i = 10, #ARGV do
  answers[#answers + 1] = seat(ARGV[i])
end
local gone = 0
for _, was in ipairs(were_lapsed) do
  if was[2] >= now - group.max_ttl then
    gone = gone + 1
  end
end
engage_brake(gone)
for _, was in ipairs(were_lapsed) do
  plan('ZREM', LAPSES, was[1])
end
commit()
return { NONCE, now, 'ok', answers }
