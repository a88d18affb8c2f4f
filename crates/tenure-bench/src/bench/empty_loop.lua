-- ARGV 1: seconds. Keeps the server busy for so long and does nothing else.
local till = os.clock() + tonumber(ARGV[1])
while os.clock() < till do
end
