-- In order of the names, so that two that want the same ones do not wait for each other.
CREATE FUNCTION tenure.want_heartbeats(names text[], lasts bigint, not_after bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    till timestamptz := tenure.ledger_now() + lasts * interval '1 microsecond';
BEGIN
    PERFORM tenure.begin_step(not_after);
    INSERT INTO tenure.heartbeat_passes AS h (roster, wanted_until)
    SELECT DISTINCT n.name, till FROM unnest(names) n (name) ORDER BY n.name
    ON CONFLICT (roster) DO UPDATE SET wanted_until = greatest(h.wanted_until, EXCLUDED.wanted_until);
    RETURN tenure.end_step(not_after, '{}');
END $$;

-- No provider was heard later than now.
CREATE FUNCTION tenure.note_heartbeat_pass(in_roster text, fresh bigint, not_after bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := tenure.ledger_now();
BEGIN
    PERFORM tenure.begin_step(not_after);
    INSERT INTO tenure.heartbeat_passes (roster, fresh_since, passed_at)
    VALUES (in_roster, least(tenure.instant(fresh), moment), moment)
    ON CONFLICT (roster) DO UPDATE SET fresh_since = EXCLUDED.fresh_since, passed_at = EXCLUDED.passed_at;
    RETURN tenure.end_step(not_after, '{}');
END $$;

CREATE FUNCTION tenure.read_heartbeat_pass(in_roster text) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT tenure.answer(jsonb_build_object('pass', (
        SELECT jsonb_build_object(
            'fresh_since', tenure.micros(h.fresh_since),
            'age', greatest(tenure.micros(tenure.ledger_now()) - tenure.micros(h.passed_at), 0))
        FROM tenure.heartbeat_passes h WHERE h.roster = in_roster AND h.passed_at IS NOT NULL)))
$$;

-- When these providers were last heard, where that was recorded. What another program recorded as infinite is no time.
CREATE FUNCTION tenure.read_last_heartbeats(in_roster text, names text[]) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT tenure.answer(jsonb_build_object('items', coalesce(
        jsonb_agg(jsonb_build_object('provider', h.provider, 'at', tenure.micros(h.heard_at))), '[]')))
    FROM tenure.heartbeats h
    WHERE h.roster = in_roster AND h.provider = ANY (names) AND isfinite(h.heard_at)
$$;
