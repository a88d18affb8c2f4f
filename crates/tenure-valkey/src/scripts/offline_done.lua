-- ARGV 8..: tenures whose end the ledger has applied. Returns how many of them were pending.
local done = 0
for i = 8, #ARGV do
  local tenure = ARGV[i]
  if load_pending(tenure) then
    local row = load_row(member_of(tenure))
    unpend(tenure)
    if row and row.term == term_of(tenure) then
      pending[tenure] = DONE
      plan_ours('HSET', OFFLINED, tenure, DONE)
    end
    done = done + 1
  end
end
commit()
return { NONCE, now, 'ok', done }
