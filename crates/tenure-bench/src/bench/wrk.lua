-- The requests in turn; the list stands before this text.
local next = 0

function request()
  next = next % #requests + 1
  return requests[next]
end
