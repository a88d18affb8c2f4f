-- A fence for writes to Valkey or Redis: a write with an outdated token is rejected.
--
--     KEYS: the key of the mark, the key of the data (on a cluster: with one hash tag)
--     ARGV: the token, a command, the arguments after the command's key
--
--     valkey-cli --eval valkey.lua {device-7}:fence {device-7}:state , 42 HSET level 21
--
-- A token equal to or above the mark is admitted and becomes the mark, and the script returns the command's answer. A
-- lower one returns the error FENCED, and nothing changes. The check and the command are one step.
--
-- The mark has no expiry and must not get one: an expired mark admits outdated tokens.

-- 2^53 - 1, the highest integer up to which Lua's arithmetic is exact.
local HIGHEST = 9007199254740991

-- Digits only: other forms of a number in Lua (0x2A, 1e3, surrounding blanks) are rejected.
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
    return refuse('ERR', 'fence: ', KEYS[1], ' does not hold a mark: ', string.sub(seen, 1, 40))
  end
  if token < mark then
    return refuse('FENCED', KEYS[1], ' has seen the token ', seen, ', and ', ARGV[1], ' is older')
  end
end

-- The mark is set first: if the command fails, the fence is too strict rather than too lax.
if seen ~= ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1])
end
return redis.call(ARGV[2], KEYS[2], unpack(ARGV, 3))
