-- On a cluster no key is on the node of every group.
local PULSE, DUE_GROUPS = false, false
