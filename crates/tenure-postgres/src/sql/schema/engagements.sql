-- The steps about engagements. Those about the same one come one after the other: whoever asks again while the first call
-- is under way waits for its answer, and gets the same.
CREATE FUNCTION tenure.lock_engagement(in_roster text, name text) RETURNS void LANGUAGE sql
AS $$ SELECT pg_advisory_xact_lock(hashtextextended('tenure/' || in_roster || '/' || name, 0)) $$;

CREATE FUNCTION tenure.engagement_change(was text, in_roster text, name text, is_changed boolean) RETURNS jsonb
LANGUAGE sql AS $$
    SELECT jsonb_build_object(
        'outcome', 'done', 'changed', is_changed, 'engagement', tenure.engagement_json(e),
        'providers', tenure.rows_json(in_roster, ARRAY[was, e.provider]))
    FROM tenure.engagements e WHERE e.roster = in_roster AND e.engagement = name
$$;

-- An engagement that is over is not created again.
CREATE FUNCTION tenure.create_engagement(
    in_roster text, name text, whose text, begin_as text, expires_in bigint, active_for bigint, not_after bigint
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    e tenure.engagements;
BEGIN
    PERFORM tenure.begin_step(not_after);
    PERFORM tenure.lock_engagement(in_roster, name);
    SELECT * INTO e FROM tenure.engagements x WHERE x.roster = in_roster AND x.engagement = name FOR UPDATE;
    IF FOUND THEN
        IF e.status NOT IN ('pending', 'active') OR (whose IS NOT NULL AND whose IS DISTINCT FROM e.provider) THEN
            RETURN tenure.end_step(not_after,
                jsonb_build_object('outcome', 'conflict', 'engagement', tenure.engagement_json(e)));
        END IF;
        RETURN tenure.end_step(not_after, tenure.engagement_change(e.provider, in_roster, name, false));
    END IF;
    IF whose IS NOT NULL THEN
        PERFORM tenure.lock_provider(in_roster, whose);
    END IF;
    PERFORM tenure.ensure_roster(in_roster);
    INSERT INTO tenure.engagements (roster, engagement, provider, status, expires_at, active_for)
    VALUES (in_roster, name, whose, begin_as, tenure.ledger_now() + expires_in * interval '1 microsecond',
            active_for * interval '1 microsecond');
    RETURN tenure.end_step(not_after, tenure.engagement_change(whose, in_roster, name, true));
END $$;

-- `to_provider`: absent to keep it, '' for none. `expires_in`: absent for the rule of the triggers (what becomes active has a
-- time of its own), 0 for never.
CREATE FUNCTION tenure.move_engagement(
    in_roster text, name text, to_status text, to_provider text, expires_in bigint, not_after bigint
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    e tenure.engagements;
    wanted tenure.engagements;
BEGIN
    PERFORM tenure.begin_step(not_after);
    PERFORM tenure.because('asked');
    PERFORM tenure.lock_engagement(in_roster, name);
    SELECT * INTO e FROM tenure.engagements x WHERE x.roster = in_roster AND x.engagement = name FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the roster has no engagement %', name USING ERRCODE = 'TN404';
    END IF;
    wanted := e;
    wanted.status := coalesce(to_status, e.status);
    wanted.provider := nullif(coalesce(to_provider, e.provider), '');
    IF e.status IN ('pending', 'active') THEN
        wanted.expires_at := CASE
            WHEN expires_in = 0 THEN NULL
            WHEN expires_in > 0 THEN tenure.ledger_now() + expires_in * interval '1 microsecond'
            WHEN e.status = 'pending' AND to_status = 'active' THEN tenure.ledger_now() + e.active_for
            ELSE e.expires_at END;
    ELSIF wanted IS DISTINCT FROM e THEN
        RETURN tenure.end_step(not_after,
            jsonb_build_object('outcome', 'conflict', 'engagement', tenure.engagement_json(e)));
    END IF;
    IF wanted IS NOT DISTINCT FROM e THEN
        RETURN tenure.end_step(not_after, tenure.engagement_change(e.provider, in_roster, name, false));
    END IF;
    IF wanted.provider IS DISTINCT FROM e.provider AND wanted.provider IS NOT NULL
       AND NOT EXISTS (SELECT FROM tenure.providers p WHERE p.roster = in_roster AND p.provider = wanted.provider) THEN
        RAISE EXCEPTION 'the roster has no provider %', wanted.provider USING ERRCODE = 'TN404';
    END IF;
    UPDATE tenure.engagements x
    SET status = wanted.status, provider = wanted.provider, expires_at = wanted.expires_at
    WHERE x.roster = in_roster AND x.engagement = name;
    RETURN tenure.end_step(not_after, tenure.engagement_change(e.provider, in_roster, name, true));
END $$;

-- The least occupied candidate with room, of several the one that has been idle longest, locked; nothing if none of those
-- that no other transaction is changing has room. `among`: absent for all but `except`. `fresh_since`: absent for all.
CREATE FUNCTION tenure.take_at_once(in_roster text, among text[], except_these text[], fresh_since bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    taken text;
BEGIN
    IF among IS NULL THEN
        SELECT p.provider INTO taken FROM tenure.providers p
        WHERE p.roster = in_roster AND p.online AND p.active AND p.occupancy < p.capacity
          AND NOT p.provider = ANY (except_these)
          AND (fresh_since IS NULL OR tenure.is_fresh(p, fresh_since))
        ORDER BY p.occupancy, p.idle_since, p.provider LIMIT 1
        FOR NO KEY UPDATE OF p SKIP LOCKED;
    ELSE
        SELECT p.provider INTO taken FROM tenure.providers p
        WHERE p.roster = in_roster AND p.provider = ANY (among) AND NOT p.provider = ANY (except_these)
          AND p.online AND p.active AND p.occupancy < p.capacity
          AND (fresh_since IS NULL OR tenure.is_fresh(p, fresh_since))
        ORDER BY p.occupancy, p.idle_since, p.provider LIMIT 1
        FOR NO KEY UPDATE OF p SKIP LOCKED;
    END IF;
    RETURN taken;
END $$;

-- Those with room as it was committed last, whoever is changing them: if there is none, there is no place.
CREATE FUNCTION tenure.with_room(in_roster text, among text[], except_these text[], fresh_since bigint) RETURNS text[]
LANGUAGE sql VOLATILE AS $$
    SELECT ARRAY(
        SELECT a.provider FROM (
            SELECT p.provider FROM tenure.providers p
            WHERE p.roster = in_roster AND p.online AND p.active AND p.occupancy < p.capacity
              AND (among IS NULL OR p.provider = ANY (among)) AND NOT p.provider = ANY (except_these)
              AND (fresh_since IS NULL OR tenure.is_fresh(p, fresh_since))
            ORDER BY p.occupancy, p.provider LIMIT 16) a
        ORDER BY a.provider)
$$;

CREATE FUNCTION tenure.take(in_roster text, among text[], except_these text[], fresh_since bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    taken text;
    waiting text[];
    candidate text;
BEGIN
    LOOP
        taken := tenure.take_at_once(in_roster, among, except_these, fresh_since);
        IF taken IS NOT NULL THEN
            RETURN taken;
        END IF;
        waiting := tenure.with_room(in_roster, among, except_these, fresh_since);
        IF waiting = '{}' THEN
            RETURN NULL;
        END IF;
        -- Those who have them may take the last place or leave it: wait for one after the other. A lock that brings no
        -- place is let go by undoing the block, so that none is held while the next is waited for.
        FOREACH candidate IN ARRAY waiting LOOP
            BEGIN
                SELECT p.provider INTO taken FROM tenure.providers p
                WHERE p.roster = in_roster AND p.provider = candidate FOR NO KEY UPDATE;
                SELECT p.provider INTO taken FROM tenure.providers p
                WHERE p.roster = in_roster AND p.provider = candidate
                  AND p.online AND p.active AND p.occupancy < p.capacity;
                IF FOUND THEN
                    RETURN taken;
                END IF;
                RAISE EXCEPTION 'full by now' USING ERRCODE = 'TN002';
            EXCEPTION WHEN SQLSTATE 'TN002' THEN
                -- To the next.
            END;
        END LOOP;
    END LOOP;
END $$;

-- A provider with room, by a count of its engagements: other programs can write engagements without triggers.
CREATE FUNCTION tenure.take_counted(in_roster text, among text[], except_these text[], fresh_since bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    taken text;
BEGIN
    LOOP
        taken := tenure.take(in_roster, among, except_these, fresh_since);
        IF taken IS NULL OR EXISTS (
            SELECT FROM tenure.providers p WHERE p.roster = in_roster AND p.provider = taken AND p.capacity > (
                SELECT count(*) FROM tenure.engagements e
                WHERE e.roster = in_roster AND e.provider = taken AND e.status IN ('pending', 'active'))) THEN
            RETURN taken;
        END IF;
        PERFORM tenure.touch(ARRAY[in_roster], ARRAY[taken]);
    END LOOP;
END $$;

-- `wanted`: the only candidate.
CREATE FUNCTION tenure.reserve(
    in_roster text, name text, wanted text, among text[], except_these text[], fresh_since bigint, begin_as text,
    expires_in bigint, active_for bigint, not_after bigint
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    e tenure.engagements;
    is_known boolean;
    whose text;
BEGIN
    PERFORM tenure.begin_step(not_after);
    PERFORM tenure.lock_engagement(in_roster, name);
    SELECT * INTO e FROM tenure.engagements x WHERE x.roster = in_roster AND x.engagement = name FOR UPDATE;
    is_known := FOUND;
    IF is_known AND (e.status NOT IN ('pending', 'active') OR e.provider <> wanted) THEN
        RETURN tenure.end_step(not_after,
            jsonb_build_object('outcome', 'conflict', 'engagement', tenure.engagement_json(e)));
    END IF;
    IF is_known AND e.provider IS NOT NULL THEN
        RETURN tenure.end_step(not_after, tenure.engagement_change(e.provider, in_roster, name, false));
    END IF;
    IF wanted IS NOT NULL THEN
        IF NOT EXISTS (SELECT FROM tenure.providers p WHERE p.roster = in_roster AND p.provider = wanted) THEN
            RAISE EXCEPTION 'the roster has no provider %', wanted USING ERRCODE = 'TN404';
        END IF;
        among := CASE WHEN among IS NULL OR wanted = ANY (among) THEN ARRAY[wanted] ELSE '{}' END;
    END IF;
    whose := tenure.take_counted(in_roster, among, except_these, fresh_since);
    IF whose IS NULL THEN
        RETURN tenure.end_step(not_after, '{"outcome": "none_available"}');
    END IF;
    IF is_known THEN
        UPDATE tenure.engagements x SET provider = whose WHERE x.roster = in_roster AND x.engagement = name;
    ELSE
        INSERT INTO tenure.engagements (roster, engagement, provider, status, expires_at, active_for)
        VALUES (in_roster, name, whose, begin_as, tenure.ledger_now() + expires_in * interval '1 microsecond',
                active_for * interval '1 microsecond');
    END IF;
    RETURN tenure.end_step(not_after, tenure.engagement_change(whose, in_roster, name, true));
END $$;

CREATE FUNCTION tenure.expire_due(in_roster text, most integer, not_after bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz;
    names text[];
    expired jsonb;
    whose text[];
    next_at bigint;
BEGIN
    PERFORM tenure.begin_step(not_after);
    moment := tenure.ledger_now();
    names := ARRAY(
        SELECT e.engagement FROM tenure.engagements e
        WHERE e.roster = in_roster AND e.status IN ('pending', 'active') AND e.expires_at <= moment
        ORDER BY e.expires_at, e.engagement LIMIT most
        FOR UPDATE SKIP LOCKED);
    IF names <> '{}' THEN
        UPDATE tenure.engagements e SET status = 'expired' WHERE e.roster = in_roster AND e.engagement = ANY (names);
    END IF;
    SELECT jsonb_agg(tenure.engagement_json(e) ORDER BY e.engagement), array_agg(e.provider) INTO expired, whose
    FROM tenure.engagements e WHERE e.roster = in_roster AND e.engagement = ANY (names);
    SELECT tenure.micros(min(e.expires_at)) INTO next_at FROM tenure.engagements e
    WHERE e.roster = in_roster AND e.status IN ('pending', 'active') AND e.expires_at IS NOT NULL;
    RETURN tenure.end_step(not_after, jsonb_build_object(
        'expired', coalesce(expired, '[]'), 'providers', tenure.rows_json(in_roster, coalesce(whose, '{}')),
        'next', next_at));
END $$;

CREATE FUNCTION tenure.recount(in_roster text, not_after bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    names text[];
BEGIN
    PERFORM tenure.begin_step(not_after);
    names := ARRAY(
        SELECT p.provider FROM tenure.providers p
        LEFT JOIN (SELECT e.provider, count(*) AS open FROM tenure.engagements e
                   WHERE e.roster = in_roster AND e.status IN ('pending', 'active') GROUP BY e.provider) c
            ON c.provider = p.provider
        WHERE p.roster = in_roster AND p.occupancy <> coalesce(c.open, 0));
    IF names <> '{}' THEN
        PERFORM tenure.touch(array_fill(in_roster, ARRAY[cardinality(names)]), names);
    END IF;
    RETURN tenure.end_step(not_after, jsonb_build_object('count', cardinality(names)));
END $$;

CREATE FUNCTION tenure.remove_closed(in_roster text, age bigint, most integer, not_after bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    before timestamptz;
    removed bigint;
BEGIN
    PERFORM tenure.begin_step(not_after);
    before := tenure.ledger_now() - age * interval '1 microsecond';
    WITH old AS (
        SELECT e.engagement FROM tenure.engagements e
        WHERE e.roster = in_roster AND e.status NOT IN ('pending', 'active') AND e.changed_at < before
        ORDER BY e.changed_at LIMIT most
        FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM tenure.engagements x USING old o WHERE x.roster = in_roster AND x.engagement = o.engagement RETURNING 1
    )
    SELECT count(*) INTO removed FROM gone;
    RETURN tenure.end_step(not_after, jsonb_build_object('count', removed));
END $$;
