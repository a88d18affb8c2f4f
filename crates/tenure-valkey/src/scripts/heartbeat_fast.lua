-- The fast path for a batch of heartbeats, tried first, like that of beats. It applies when the store has served
-- without a gap, every provider may send heartbeats and is alive, and no lapse is due to be dropped. Then only
-- deadlines change. Any other batch is left unchanged to the full script that follows.
do
  local prefix, count, names_from = string.sub(KEYS[1], 1, -5), tonumber(ARGV[8]), 10
  local now = clock()
  local struct_unpack, struct_pack, byte = struct.unpack, struct.pack, string.byte
  local meta = redis.call('HMGET', KEYS[1], 'state', 'roster', 'pulse')
  local common = meta[1] and meta[2] and count > 0
  local born, tick, resumed, min_ttl, max_ttl, unsettled, cause, grants, brake_since, brake_until
  if common then
    born, tick, resumed, min_ttl, max_ttl, unsettled, cause, grants, brake_since, brake_until = struct_unpack(STATE, meta[1])
    -- The stamp tells when the store resumed, so a heartbeat looks, unlike a beat.
    local _, gap = Gap.look(KEYS[1], now, tick, resumed, min_ttl, (Gap.known(meta[3])))
    common = not gap
  end
  if common and brake_until == 0 then
    local oldest = redis.call('ZRANGE', KEYS[10], 0, 0, 'WITHSCORES')[2]
    common = not oldest or oldest + max_ttl >= now
  end
  if common then
    local packed = redis.call('HMGET', prefix .. 'providers', unpack(ARGV, names_from, names_from + count - 1))
    local issued = ARGV[9] ~= '' and { struct_unpack('<' .. string.rep('d', count), ARGV[9]) }
    local tenures, n, replies = {}, 0, nil
    for i = 1, count do
      local row, reply = packed[i], 6
      if row then
        if #row <= HEAD then
          common = false
          break
        end
        local active = byte(row)
        if active == 48 then
          reply = 3
        elseif active ~= 49 then
          common = false
          break
        elseif issued and issued[i] >= 0 and issued[i] < struct_unpack('<I8', row, 18) then
          reply = 4
        else
          local tenure = tenure_in(ARGV[names_from - 1 + i], row)
          if tenure then
            reply, n = 1, n + 1
            tenures[n] = tenure
          else
            reply = 2
          end
        end
      end
      if replies then
        replies[i] = reply
      elseif reply ~= 1 then
        replies = {}
        for j = 1, i - 1 do
          replies[j] = 1
        end
        replies[i] = reply
      end
    end
    local lives = common and n > 0 and redis.call('HMGET', prefix .. 'alive', unpack(tenures)) or {}
    local renewed, before, after = {}, nil, nil
    for i = 1, common and n or 0 do
      local row = lives[i]
      -- Adjacent values are mostly equal: Lua compares strings by address.
      if row ~= before then
        if not row then
          common = false
          break
        end
        local deadline, ttl, revision, marks = unpack_life(row)
        -- The end of a tenure, as in `end_of`.
        if now >= resumed + ttl and (now >= deadline or Gap.is_before_fall(deadline, now, ttl)) then
          common = false
          break
        end
        before, after = row, pack_life(now + ttl, ttl, revision, without_name(marks))
      end
      renewed[2 * i - 1], renewed[2 * i] = tenures[i], after
    end
    if common then
      redis.call('HSET', KEYS[1], 'state', struct_pack(STATE, born, now, resumed, min_ttl, max_ttl, unsettled, cause, grants,
        brake_since, brake_until))
      if n > 0 then
        redis.call('HSET', prefix .. 'alive', unpack(renewed))
      end
      local roster = unpack_roster(meta[2])
      return { ARGV[1], now, 'ok', { roster.seeded, roster.high, roster.settings, resumed }, replies or 1 }
    end
  end
end
