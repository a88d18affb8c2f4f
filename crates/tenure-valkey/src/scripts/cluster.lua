-- The keys outside the groups: on a cluster each primary has its own, whose tag the process knows. A process whose map of
-- the slots is old names keys that are not here; they count as absent.
local TAG = string.match(ARGV[1], ' (%d+)$')
local PULSE, DUE_GROUPS = TAG and 'tenure:pulse:{' .. TAG .. '}', TAG and 'tenure:due:{' .. TAG .. '}'
-- The node that runs this step, with its epoch, which rises when the node takes over slots; or false, without the rights.
local this_node
local function THIS_NODE()
  if this_node == nil then
    local id, info = redis.pcall('CLUSTER', 'MYID'), redis.pcall('CLUSTER', 'INFO')
    local epoch = type(info) == 'string' and string.match(info, 'cluster_my_epoch:(%d+)')
    this_node = type(id) == 'string' and epoch and id .. ' ' .. epoch or false
  end
  return this_node
end
