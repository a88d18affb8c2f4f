-- A fence for writes to Valkey or Redis: who comes with an older token is refused.
--
--     KEYS: the key of the mark, the key of the data (on a cluster: with one hash tag)
--     ARGV: the token, a command, what follows the command's key
--
--     valkey-cli --eval valkey.lua {device-7}:fence {device-7}:state , 42 HSET level 21
--
-- A token equal to the mark or above it is admitted and becomes the mark, and the command's answer is the answer; a lower
-- one is answered with the error FENCED, and nothing changes. The check and the command are one step.
--
-- The mark has no time to live, and must not get one: with it the fence would forget.

-- 2^53 - 1: up to here every whole number is exact in Lua's arithmetic.
local HIGHEST = 9007199254740991

-- Digits only: what Lua would take for a number as well (0x2A, 1e3, surrounding blanks) is none here.
local function number(text)
  if string.find(text, '^[1-9]%d*$') then
    local value = tonumber(text)
    if value <= HIGHEST then
      return value
    end
  end
end

local function refuse(code, ...)
  return redis.error_reply(code .. ' ' .. table.concat({ ... }))
end

if #KEYS ~= 2 or KEYS[1] == KEYS[2] or #ARGV < 2 then
  return refuse('ERR', 'fence: give the keys of the mark and of the data, the token, and a command without its key')
end

local token = number(ARGV[1])
if not token then
  return refuse('ERR', 'fence: a token is a whole number from 1 to 2^53-1, not ', string.sub(ARGV[1], 1, 40))
end

local seen = redis.call('GET', KEYS[1])
if seen then
  local mark = number(seen)
  if not mark then
    return refuse('ERR', 'fence: what ', KEYS[1], ' holds is no mark: ', string.sub(seen, 1, 40))
  end
  if token < mark then
    return refuse('FENCED', KEYS[1], ' has seen the token ', seen, ', and ', ARGV[1], ' is older')
  end
end

-- The mark comes first: should the command fail, the fence is too strict rather than too lax.
if seen ~= ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1])
end
return redis.call(ARGV[2], KEYS[2], unpack(ARGV, 3))
