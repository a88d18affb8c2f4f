-- What is known of a group as a whole, packed into one field of its meta: ten doubles, as `group` in `lib.lua` names them.
-- Lua's own numbers cost a tenth of what text costs, and one field a tenth of what ten cost.
local STATE = '<dddddddddd'
local CAUSES = { 'silent', 'clock_back', 'data_loss', 'tail_loss' }

