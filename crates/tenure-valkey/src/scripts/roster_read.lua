-- Part of the scripts that read a roster; follows `read.lua`. They end no tenure: a tenure past its end counts as
-- ended.
local PROVIDERS = PREFIX .. 'providers'
-- How many members that may have lapsed are checked.
local MAX_OVERDUE = 1000
local meta = redis.call('HMGET', META, 'state', 'roster', 'refused', 'pulse')
local roster = unpack_roster(meta[1] and meta[2] or '')

-- When the store last resumed serving the group, with a gap that no step has met yet.
local resumed = now
if meta[1] then
  local _, tick, since, min_ttl = struct.unpack(STATE, meta[1])
  local _, at = Gap.look(META, now, tick, since, min_ttl, (Gap.known(meta[4])))
  resumed = at and Gap.resume(since, at, now) or since
end

-- When every ttl last restarted: beats may have been refused since.
local _, refused_until = unpack_refusal(meta[3])
local given = refused_until > now and resumed or math.max(resumed, refused_until)

-- The state of the mirror for a reply.
local function stamp()
  return { roster.seeded, roster.high, roster.settings, resumed }
end

-- The end of a tenure, as in `lib.lua`.
local function lives(life)
  local deadline, ttl = unpack_life(life)
  local grace = given + ttl
  if Gap.is_before_fall(deadline, now, ttl) then
    return now < grace
  end
  return now < math.max(deadline, grace)
end

-- Takes providers and their rows. Returns for each its row's tenure and, if that is the current one, its packed value,
-- or false.
local function lives_of(providers, packed)
  local named, tenures, n = {}, {}, 0
  for i = 1, #providers do
    local row = packed[i]
    local tenure = row and #row > HEAD and tenure_in(providers[i], row) or false
    named[i] = tenure
    if tenure then
      n = n + 1
      tenures[n] = tenure
    end
  end
  local found, lives = n > 0 and redis.call('HMGET', PREFIX .. 'alive', unpack(tenures)) or {}, {}
  n = 0
  for i = 1, #providers do
    if named[i] then
      n = n + 1
      lives[i] = found[n]
    else
      lives[i] = false
    end
  end
  return named, lives
end

-- The number of online providers in each list, without those that lapsed but that no step has ended yet; and how many
-- were not checked. Unchecked ones may be in any list, so they are counted apart.
local function count_online()
  local counts = { free = redis.call('ZCARD', PREFIX .. 'free'), busy = redis.call('SCARD', PREFIX .. 'busy'),
    barred = redis.call('SCARD', PREFIX .. 'barred') }
  local due = PREFIX .. 'due'
  local names = redis.call('ZRANGEBYSCORE', due, '-inf', text(now), 'LIMIT', 0, MAX_OVERDUE)
  if #names == 0 then
    return counts, 0
  end
  local tenures = {}
  for i, term in ipairs(redis.call('HMGET', PREFIX .. 'members', unpack(names))) do
    tenures[i] = term and names[i] .. '@' .. text((struct.unpack('<d', term))) or names[i]
  end
  for i, life in ipairs(redis.call('HMGET', PREFIX .. 'alive', unpack(tenures))) do
    if life and not lives(life) then
      local name = names[i]
      if redis.call('ZSCORE', PREFIX .. 'free', name) then
        counts.free = counts.free - 1
      elseif redis.call('SISMEMBER', PREFIX .. 'busy', name) == 1 then
        counts.busy = counts.busy - 1
      elseif redis.call('SISMEMBER', PREFIX .. 'barred', name) == 1 then
        counts.barred = counts.barred - 1
      end
    end
  end
  return counts, redis.call('ZCOUNT', due, '-inf', text(now)) - #names
end
