-- Part of every script that may end a tenure; follows `lib.lua`. In a group with a roster, the step that ends a tenure
-- also removes its provider from the available list and records the end for the ledger.
--
-- These lists are derived from the rows and the live tenures. A list of a foreign type is left alone: it must not keep
-- a tenure alive, and `verify_roster` repairs it.

local PROVIDERS, OFFLINED = PREFIX .. 'providers', PREFIX .. 'offlined'
local OFFLINE, OFFLINE_LAPSED = PREFIX .. 'offline', PREFIX .. 'offline:lapsed'

-- The reply for a key, or nil for a key of a foreign type.
local function ask_ours(command, key, ...)
  local answer = redis.pcall(command, key, ...)
  if type(answer) == 'table' and answer.err then
    if not string.find(answer.err, 'WRONGTYPE', 1, true) then
      error(answer)
    end
    return nil
  end
  return answer
end

local ours = {}
local function plan_ours(command, key, first, second)
  if ours[key] == nil then
    ours[key] = ask_ours(CARD[string.sub(command, 1, 1)], key) ~= nil
    touched[key] = ours[key] or nil
  end
  if ours[key] then
    plan(command, key, first, second)
  end
end

-- A provider's row including planned writes; false for none.
local rows = {}
local function load_row(provider)
  if rows[provider] == nil then
    rows[provider] = unpack_row(ask_ours('HGET', PROVIDERS, provider)) or false
  end
  return rows[provider]
end

-- Moves a provider to another list. Takes the lists as returned by `place_of`, and the occupancies.
local function move(provider, from, to, was, is)
  if from and from ~= to then
    plan_ours(from == 'free' and 'ZREM' or 'SREM', PREFIX .. from, provider)
  end
  if to == 'free' then
    if from ~= to or was ~= is then
      plan_ours('ZADD', PREFIX .. to, text(is), provider)
    end
  elseif to and from ~= to then
    plan_ours('SADD', PREFIX .. to, provider)
  end
end

-- The end that the ledger has not applied yet: 'reason at heard ended', where heard may be '-'; including planned
-- writes, false for none. 'done' means that the ledger has applied it while the row that says so is still on its way.
local DONE = 'done'
local pending = {}
local function load_offlined(tenure)
  if pending[tenure] == nil then
    pending[tenure] = ask_ours('HGET', OFFLINED, tenure) or false
  end
  return pending[tenure]
end
local function load_pending(tenure)
  local record = load_offlined(tenure)
  return record ~= DONE and record
end
local function pend(tenure, reason, at, heard, ended)
  pending[tenure] = reason .. ' ' .. text(at) .. ' ' .. (heard and text(heard) or '-') .. ' ' .. text(ended)
  plan_ours('HSET', OFFLINED, tenure, pending[tenure])
  plan_ours('ZADD', reason == 'lapsed' and OFFLINE_LAPSED or OFFLINE, text(ended + BURST), tenure)
end
local function unpend(tenure)
  pending[tenure] = false
  plan_ours('HDEL', OFFLINED, tenure)
  plan_ours('ZREM', OFFLINE, tenure)
  plan_ours('ZREM', OFFLINE_LAPSED, tenure)
end

note_offline = function(member, tenure, m, reason)
  local row = load_row(member)
  if not row or row.term ~= m.term then
    return
  end
  move(member, place_of(row, true), place_of(row, false))
  pend(tenure, reason, math.min(end_of(m), now), math.max(0, m.deadline - m.ttl), now)
  roster.changed, roster.stale = 1, true
end
