-- The fast path for a batch of beats, tried first. It applies when the store has served without a gap, every tenure is
-- its member's current one and alive, no beat changes a ttl or names a newer revision than the store has, and no lapse
-- is due to be dropped. Then only deadlines change. Any other batch is left unchanged to the full script that follows.
-- Returns the common ttl, or one per tenure; and 0 when every revision is the highest that the caller names, or one per
-- tenure.
do
  local alive = string.sub(KEYS[1], 1, -5) .. 'alive'
  local count, tenures_from = tonumber(ARGV[8]), 13
  local now = clock()
  local struct_unpack, struct_pack, argv = struct.unpack, struct.pack, ARGV
  local state = redis.call('HGET', KEYS[1], 'state')
  local common = state and count > 0 and ARGV[9] == '0' and ARGV[10] == ''
  local born, tick, resumed, min_ttl, max_ttl, unsettled, cause, grants, brake_since, brake_until
  if common then
    born, tick, resumed, min_ttl, max_ttl, unsettled, cause, grants, brake_since, brake_until = struct_unpack(STATE, state)
    common = Gap.is_near(tick, now, Gap.of(min_ttl))
  end
  if common and brake_until == 0 then
    local oldest = redis.call('ZRANGE', KEYS[10], 0, 0, 'WITHSCORES')[2]
    common = not oldest or oldest + max_ttl >= now
  end
  if common then
    local rows = redis.call('HMGET', alive, unpack(ARGV, tenures_from, tenures_from + count - 1))
    local told = ARGV[11] ~= '' and { struct_unpack('<' .. string.rep('d', count), ARGV[11]) }
    local newest = ARGV[12] ~= '' and { struct_unpack('<' .. string.rep('d', count), ARGV[12]) }
    local renewed, one_ttl, ttls, revisions = {}, nil, nil, nil
    local before, after, deadline, ttl, revision, marks, named, name, known
    -- Adjacent values are mostly equal (Lua compares strings by address). Such a beat needs no look of its own, unless a
    -- beat of the batch named a revision, or has another ttl or revision than the first.
    local differ = told or newest
    for i = 1, count do
      local row = rows[i]
      if differ or row ~= before then
        name = told and told[i] or 0
        known = newest and newest[i] or name
        if row ~= before or (name > 0) ~= named then
          if not row then
            common = false
            break
          end
          deadline, ttl, revision, marks = unpack_life(row)
          -- The end of a tenure, as in `end_of`.
          if now >= resumed + ttl and (now >= deadline or Gap.is_before_fall(deadline, now, ttl)) then
            common = false
            break
          end
          named = name > 0
          if marks >= REVOKED and name == revision then
            -- The holder may have noticed an operator's release.
            common = false
            break
          end
          before, after = row, pack_life(now + ttl, ttl, revision, (marks >= REVOKED and REVOKED or 0) + (named and NAMED or 0))
        end
        if revision ~= known then
          if known > revision then
            common = false
            break
          end
          if not revisions then
            revisions = {}
            for j = 1, i - 1 do
              revisions[j] = newest and newest[j] or told and told[j] or 0
            end
          end
        end
        if revisions then
          revisions[i] = revision
        end
        if ttls then
          ttls[i] = ttl
        elseif i == 1 then
          one_ttl = ttl
        elseif ttl ~= one_ttl then
          ttls = {}
          for j = 1, i - 1 do
            ttls[j] = one_ttl
          end
          ttls[i] = ttl
        end
        differ = told or newest or revisions or ttls
      end
      renewed[2 * i - 1], renewed[2 * i] = argv[tenures_from - 1 + i], after
    end
    if common then
      redis.call('HSET', KEYS[1], 'state', struct_pack(STATE, born, now, resumed, min_ttl, max_ttl, unsettled, cause, grants,
        brake_since, brake_until))
      redis.call('HSET', alive, unpack(renewed))
      return { ARGV[1], now, 'ok', ttls or one_ttl, revisions or 0 }
    end
  end
end
