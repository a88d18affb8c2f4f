-- A test's clock, in µs. Only with the cargo feature `test-clock`.
local function clock()
  return tonumber(redis.call('GET', 'tenure:test:now') or '0')
end
