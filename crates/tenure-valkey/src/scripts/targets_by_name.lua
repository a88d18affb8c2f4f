-- ARGV 3..: targets. Returns those that exist: target and specification.
local targets, found = {}, {}
for i = 3, #ARGV do
  targets[i - 2] = ARGV[i]
end
for i, spec in ipairs(#targets > 0 and redis.call('HMGET', PREFIX .. 'targets', unpack(targets)) or {}) do
  if spec then
    found[#found + 1] = { targets[i], spec }
  end
end
return { NONCE, now, 'ok', found }
