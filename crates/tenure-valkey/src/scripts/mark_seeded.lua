-- ARGV 8: when the store resumed serving, as read before the ledger was copied. Marks the mirror as complete, unless
-- the store has resumed again since. Returns whether it is marked.
local same = group.resumed == tonumber(ARGV[8])
if same and roster.seeded ~= 1 then
  roster.seeded, roster.stale = 1, true
end
commit()
return { NONCE, now, 'ok', same and 1 or 0 }
