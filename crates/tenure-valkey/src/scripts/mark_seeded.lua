-- ARGV 8: when the store resumed serving, as it was before anything was brought. Everything that the ledger had has arrived,
-- unless the store resumed again since. Answers whether it is marked.
local same = group.resumed == tonumber(ARGV[8])
if same and roster.seeded ~= 1 then
  roster.seeded, roster.stale = 1, true
end
commit()
return { NONCE, now, 'ok', same and 1 or 0 }
