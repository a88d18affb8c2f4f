-- The keys outside the groups, which are on the same server as every group.
local PULSE, DUE_GROUPS, THIS_NODE = 'tenure:pulse', 'tenure:due', false
