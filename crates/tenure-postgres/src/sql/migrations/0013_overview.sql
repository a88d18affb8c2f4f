-- How all rosters stand: what every process polls, in one statement however many rosters there are. Which rosters there are
-- is found as by read_rosters. Each costs a look into the index of providers, of the outbox and of engagements that expire.
CREATE FUNCTION tenure.read_overview() RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    WITH RECURSIVE staffed (roster) AS (
        (SELECT p.roster FROM tenure.providers p ORDER BY p.roster LIMIT 1)
        UNION ALL
        SELECT (SELECT p.roster FROM tenure.providers p WHERE p.roster > s.roster ORDER BY p.roster LIMIT 1)
        FROM staffed s WHERE s.roster IS NOT NULL
    ), known AS (
        SELECT r.roster FROM tenure.rosters r
        UNION
        SELECT s.roster FROM staffed s WHERE s.roster NOT IN ('.', '..')
    )
    SELECT tenure.answer(jsonb_build_object(
        'wanted', (SELECT coalesce(jsonb_agg(h.roster), '[]') FROM tenure.heartbeat_passes h
                   WHERE h.wanted_until > tenure.ledger_now()),
        'rosters', coalesce(jsonb_agg(jsonb_build_object(
            'roster', k.roster,
            'settings', tenure.settings_json(k.roster),
            'dirty', EXISTS (SELECT FROM tenure.outbox o WHERE o.roster = k.roster),
            'next_expiry', (SELECT tenure.micros(min(e.expires_at)) FROM tenure.engagements e
                            WHERE e.roster = k.roster AND e.status IN ('pending', 'active')
                              AND e.expires_at IS NOT NULL))), '[]')))
    FROM known k
$$;
