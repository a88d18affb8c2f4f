-- The clock of a test, in µs. Only with the cargo feature `test-clock`. In a cluster a test sets one key on each node.
local function clock()
  for _, key in ipairs({ 'tenure:test:now', 'tenure:test:now:1', 'tenure:test:now:2' }) do
    local now = redis.pcall('GET', key)
    if type(now) == 'string' then
      return tonumber(now)
    end
  end
  return 0
end
