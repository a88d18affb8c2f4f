-- Rows of the ledger by plain SQL: its triggers see to the rest. $1 the roster, $2 names, $3 tenures.
INSERT INTO tenure.providers (roster, provider, capacity, online, online_tenure)
SELECT $1, u.provider, 1, true, u.tenure FROM unnest($2::text[], $3::text[]) u (provider, tenure)
ON CONFLICT (roster, provider) DO UPDATE SET online = true, online_tenure = EXCLUDED.online_tenure
