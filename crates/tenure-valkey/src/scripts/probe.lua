-- ARGV: pairs of a command and a key. Returns the pairs that this user may not run, as "command on key".
local denied = {}
if redis.acl_check_cmd then
  for i = 1, #ARGV, 2 do
    if not redis.acl_check_cmd(ARGV[i], ARGV[i + 1]) then
      denied[#denied + 1] = ARGV[i] .. ' on ' .. ARGV[i + 1]
    end
  end
end
return denied
