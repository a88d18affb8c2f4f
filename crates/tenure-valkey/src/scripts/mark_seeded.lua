-- Everything that the ledger had has arrived.
if roster.seeded ~= 1 then
  roster.seeded, roster.stale = 1, true
end
commit()
return { NONCE, now, 'ok' }
