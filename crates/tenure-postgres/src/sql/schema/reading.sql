-- What the ledger answers. Each answer is one JSON value and carries the ledger's clock, so that a call is one statement
-- and one round trip, and nothing needs a transaction that waits for a client.

-- A standby serves reads from the past: better none.
CREATE FUNCTION tenure.answer(body jsonb) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'this server is a standby' USING ERRCODE = '25006';
    END IF;
    RETURN body || jsonb_build_object('now', tenure.micros(tenure.ledger_now()));
END $$;

CREATE FUNCTION tenure.provider_json(p tenure.providers, heard_at timestamptz) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'provider', (p).provider, 'display_name', (p).display_name, 'active', (p).active,
        'online', (p).online_tenure, 'capacity', (p).capacity, 'occupancy', (p).occupancy,
        'last_online_at', tenure.micros((p).last_online_at), 'last_offline_at', tenure.micros((p).last_offline_at),
        'last_heartbeat_at', tenure.micros(heard_at), 'revoked_before', tenure.micros((p).revoked_before),
        'version', (p).version)
$$;

CREATE FUNCTION tenure.engagement_json(e tenure.engagements) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'engagement', (e).engagement, 'provider', (e).provider, 'status', (e).status,
        'created_at', tenure.micros((e).created_at), 'changed_at', tenure.micros((e).changed_at),
        'expires_at', tenure.micros((e).expires_at), 'version', (e).version,
        'active_for', (extract(epoch FROM (e).active_for) * 1000000)::bigint)
$$;

CREATE FUNCTION tenure.settings_json(in_roster text) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'default_capacity', s.default_capacity, 'stale_after_ms', s.stale_after_ms,
        'require_heartbeat', s.require_heartbeat, 'snapshot_ms', s.snapshot_ms, 'version', s.version)
    FROM tenure.rosters s WHERE s.roster = in_roster
$$;

-- The rows of these providers, in order of their names.
CREATE FUNCTION tenure.rows_json(in_roster text, names text[]) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(tenure.provider_json(p, h.heard_at) ORDER BY p.provider), '[]')
    FROM tenure.providers p
    LEFT JOIN tenure.heartbeats h ON h.roster = p.roster AND h.provider = p.provider
    WHERE p.roster = in_roster AND p.provider = ANY (names)
$$;

CREATE FUNCTION tenure.read_now() RETURNS jsonb LANGUAGE sql VOLATILE
AS $$ SELECT tenure.answer('{}') $$;

-- The rosters that there are. A provider may have been written by other programs, and its roster have no row: then it is
-- found by its providers. Each is one look into their index, so that this costs as many looks as there are rosters. A name
-- that no roster can have would hold up all others.
CREATE FUNCTION tenure.read_rosters() RETURNS jsonb LANGUAGE sql VOLATILE AS $$
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
    SELECT tenure.answer(jsonb_build_object('items', coalesce(jsonb_agg(k.roster ORDER BY k.roster), '[]')))
    FROM known k
$$;

CREATE FUNCTION tenure.read_settings(in_roster text) RETURNS jsonb LANGUAGE sql VOLATILE
AS $$ SELECT tenure.answer(jsonb_build_object('settings', tenure.settings_json(in_roster))) $$;

CREATE FUNCTION tenure.read_provider(in_roster text, name text) RETURNS jsonb LANGUAGE sql VOLATILE
AS $$ SELECT tenure.answer(jsonb_build_object('items', tenure.rows_json(in_roster, ARRAY[name]))) $$;

CREATE FUNCTION tenure.read_named(in_roster text, names text[]) RETURNS jsonb LANGUAGE sql VOLATILE
AS $$ SELECT tenure.answer(jsonb_build_object('items', tenure.rows_json(in_roster, names))) $$;

CREATE FUNCTION tenure.read_engagement(in_roster text, name text) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT tenure.answer(jsonb_build_object('engagement', (
        SELECT tenure.engagement_json(e) FROM tenure.engagements e
        WHERE e.roster = in_roster AND e.engagement = name)))
$$;

-- One statement per state, so that each is planned for its own index.
CREATE FUNCTION tenure.read_providers(in_roster text, state text, after text, most integer) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    names text[];
BEGIN
    IF state = 'online' THEN
        names := ARRAY(SELECT p.provider FROM tenure.providers p
                       WHERE p.roster = in_roster AND p.provider > after AND p.online ORDER BY p.provider LIMIT most);
    ELSIF state = 'available' THEN
        names := ARRAY(SELECT p.provider FROM tenure.providers p
                       WHERE p.roster = in_roster AND p.provider > after
                         AND p.online AND p.active AND p.occupancy < p.capacity ORDER BY p.provider LIMIT most);
    ELSIF state = 'busy' THEN
        names := ARRAY(SELECT p.provider FROM tenure.providers p
                       WHERE p.roster = in_roster AND p.provider > after
                         AND p.online AND p.occupancy >= p.capacity ORDER BY p.provider LIMIT most);
    ELSE
        names := ARRAY(SELECT p.provider FROM tenure.providers p
                       WHERE p.roster = in_roster AND p.provider > after
                         AND (state IS NULL OR (state = 'offline' AND p.active AND NOT p.online)
                              OR (state = 'deactivated' AND NOT p.active))
                       ORDER BY p.provider LIMIT most);
    END IF;
    RETURN tenure.answer(jsonb_build_object('items', tenure.rows_json(in_roster, names)));
END $$;

-- Those who can take work, after a place in their order; -1 and '' for the beginning.
CREATE FUNCTION tenure.read_available(
    in_roster text, most integer, fresh_since bigint, after_occupancy bigint, after_provider text
) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    able jsonb;
BEGIN
    -- One statement for each question, so that each is planned for its own.
    IF fresh_since IS NULL THEN
        SELECT jsonb_agg(jsonb_build_object('provider', a.provider, 'occupancy', a.occupancy, 'capacity', a.capacity)
                         ORDER BY a.occupancy, a.provider) INTO able
        FROM (SELECT p.provider, p.occupancy, p.capacity FROM tenure.providers p
              WHERE p.roster = in_roster AND (p.occupancy, p.provider) > (after_occupancy::integer, after_provider)
                AND p.online AND p.active AND p.occupancy < p.capacity
              ORDER BY p.occupancy, p.provider LIMIT most) a;
    ELSE
        SELECT jsonb_agg(jsonb_build_object('provider', a.provider, 'occupancy', a.occupancy, 'capacity', a.capacity)
                         ORDER BY a.occupancy, a.provider) INTO able
        FROM (SELECT p.provider, p.occupancy, p.capacity FROM tenure.providers p
              WHERE p.roster = in_roster AND (p.occupancy, p.provider) > (after_occupancy::integer, after_provider)
                AND p.online AND p.active AND p.occupancy < p.capacity
                AND tenure.is_fresh(p, fresh_since)
              ORDER BY p.occupancy, p.provider LIMIT most) a;
    END IF;
    RETURN tenure.answer(jsonb_build_object('items', coalesce(able, '[]')));
END $$;

-- Whether somebody came online or was heard of since.
CREATE FUNCTION tenure.is_fresh(p tenure.providers, since bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT since IS NULL OR coalesce((p).last_online_at >= tenure.instant(since), false)
        OR EXISTS (SELECT FROM tenure.heartbeats h
                   WHERE h.roster = (p).roster AND h.provider = (p).provider AND h.heard_at >= tenure.instant(since))
$$;

CREATE FUNCTION tenure.read_stats(in_roster text, fresh_since bigint) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    counts jsonb;
    fresh bigint;
BEGIN
    SELECT jsonb_build_object(
        'online', count(*) FILTER (WHERE p.online),
        'available', count(*) FILTER (WHERE p.online AND p.active AND p.occupancy < p.capacity),
        'busy', count(*) FILTER (WHERE p.online AND p.occupancy >= p.capacity),
        'offline', count(*) FILTER (WHERE p.active AND NOT p.online),
        'deactivated', count(*) FILTER (WHERE NOT p.active),
        'dirty', (SELECT count(*) FROM tenure.outbox o WHERE o.roster = in_roster)) INTO counts
    FROM tenure.providers p WHERE p.roster = in_roster;
    IF fresh_since IS NOT NULL THEN
        SELECT count(*) INTO fresh FROM tenure.providers p
        LEFT JOIN tenure.heartbeats h ON h.roster = p.roster AND h.provider = p.provider
        WHERE p.roster = in_roster AND p.online AND p.active AND p.occupancy < p.capacity
          AND greatest(p.last_online_at, h.heard_at) >= tenure.instant(fresh_since);
        counts := counts || jsonb_build_object('available', fresh);
    END IF;
    RETURN tenure.answer(counts);
END $$;

CREATE FUNCTION tenure.read_log(in_roster text, name text, after bigint, most integer) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    entries jsonb;
    decided bigint := tenure.log_decided(in_roster);
BEGIN
    IF name IS NULL THEN
        SELECT jsonb_agg(to_jsonb(l) || jsonb_build_object('at', tenure.micros(l.logged_at)) ORDER BY l.id) INTO entries
        FROM (SELECT * FROM tenure.provider_log x WHERE x.roster = in_roster AND x.id > after AND x.id <= decided
              ORDER BY x.id LIMIT most) l;
    ELSE
        SELECT jsonb_agg(to_jsonb(l) || jsonb_build_object('at', tenure.micros(l.logged_at)) ORDER BY l.id) INTO entries
        FROM (SELECT * FROM tenure.provider_log x WHERE x.roster = in_roster AND x.provider = name AND x.id > after
                AND x.id <= decided
              ORDER BY x.id LIMIT most) l;
    END IF;
    RETURN tenure.answer(jsonb_build_object('items', coalesce(entries, '[]')));
END $$;

CREATE FUNCTION tenure.read_dirty(in_roster text, most integer) RETURNS jsonb LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN tenure.answer(jsonb_build_object('items', coalesce((
        SELECT jsonb_agg(jsonb_build_object(
            'provider', o.provider, 'version', o.version, 'since', tenure.micros(o.since),
            'row', CASE WHEN p.provider IS NOT NULL THEN tenure.provider_json(p, h.heard_at) END) ORDER BY o.version)
        FROM (SELECT * FROM tenure.outbox x WHERE x.roster = in_roster ORDER BY x.version LIMIT most) o
        LEFT JOIN tenure.providers p ON p.roster = o.roster AND p.provider = o.provider
        LEFT JOIN tenure.heartbeats h ON h.roster = o.roster AND h.provider = o.provider), '[]')));
END $$;

-- How many rows of each roster may not have reached the mirror, of those that have any: one look for all rosters.
CREATE FUNCTION tenure.read_dirty_counts() RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT tenure.answer(jsonb_build_object('items', coalesce(
        jsonb_agg(jsonb_build_object('roster', d.roster, 'count', d.count) ORDER BY d.roster), '[]')))
    FROM (SELECT o.roster, count(*) AS count FROM tenure.outbox o GROUP BY o.roster) d
$$;

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
