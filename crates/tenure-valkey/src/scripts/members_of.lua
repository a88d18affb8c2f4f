-- ARGV 3..: members. Returns those that exist.
local names = {}
for i = 3, #ARGV do
  names[i - 2] = ARGV[i]
end
return { NONCE, now, 'ok', life(), members_of(names) }
