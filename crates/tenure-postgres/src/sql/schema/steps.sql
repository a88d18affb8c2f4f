-- The steps that change something. Each is one call, and one transaction by itself.

-- Refuses a step that comes after its time, and bounds how long it may wait for a lock.
CREATE FUNCTION tenure.begin_step(not_after bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    at_now bigint := tenure.micros(tenure.ledger_now());
BEGIN
    IF at_now > not_after THEN
        RAISE EXCEPTION 'too late' USING ERRCODE = 'TN001', DETAIL = at_now::text;
    END IF;
    IF not_after IS NOT NULL THEN
        PERFORM set_config('lock_timeout', least(greatest((not_after - at_now) / 1000, 1), 60000)::text, true);
    END IF;
END $$;

-- The answer of a step, unless its time has passed while it waited: then nothing of it stays.
CREATE FUNCTION tenure.end_step(not_after bigint, body jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    at_now bigint := tenure.micros(tenure.ledger_now());
BEGIN
    IF at_now > not_after THEN
        RAISE EXCEPTION 'too late' USING ERRCODE = 'TN001', DETAIL = at_now::text;
    END IF;
    RETURN tenure.answer(body);
END $$;

-- A commit that waited for a synchronous standby and was told to stop is here and may not be there. The step that repeats
-- it finds its work done, and must not answer before the standby has it: a transaction that wrote something waits for all
-- that was committed before. One that has locked a row has written something; one that has not, calls this.
CREATE FUNCTION tenure.rest_on_a_write() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF pg_current_xact_id_if_assigned() IS NULL THEN
        PERFORM pg_logical_emit_message(true, 'tenure', '');
    END IF;
END $$;

-- Why what follows is done, for the log.
CREATE FUNCTION tenure.because(why text) RETURNS void LANGUAGE sql
AS $$ SELECT set_config('tenure.reason', why, true) $$;

CREATE FUNCTION tenure.ensure_roster(in_roster text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM tenure.rosters r WHERE r.roster = in_roster) THEN
        INSERT INTO tenure.rosters (roster) VALUES (in_roster) ON CONFLICT DO NOTHING;
    END IF;
END $$;

CREATE FUNCTION tenure.lock_provider(in_roster text, name text) RETURNS tenure.providers LANGUAGE plpgsql AS $$
DECLARE
    p tenure.providers;
BEGIN
    SELECT * INTO p FROM tenure.providers x WHERE x.roster = in_roster AND x.provider = name FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the roster has no provider %', name USING ERRCODE = 'TN404';
    END IF;
    RETURN p;
END $$;

-- What became of one provider that was `before`.
CREATE FUNCTION tenure.provider_change(before tenure.providers, in_roster text, name text) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    after_it jsonb := tenure.rows_json(in_roster, ARRAY[name]) -> 0;
BEGIN
    RETURN jsonb_build_object(
        'outcome', 'done', 'row', after_it, 'was_online', before.online_tenure,
        'changed', (after_it ->> 'version')::bigint IS DISTINCT FROM before.version);
END $$;

CREATE FUNCTION tenure.set_settings(
    in_roster text, capacity integer, stale_ms bigint, heartbeat boolean, snap_ms bigint, not_after bigint
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    is_new boolean;
BEGIN
    PERFORM tenure.begin_step(not_after);
    INSERT INTO tenure.rosters (roster) VALUES (in_roster) ON CONFLICT DO NOTHING;
    is_new := FOUND;
    PERFORM FROM tenure.rosters r WHERE r.roster = in_roster FOR NO KEY UPDATE;
    UPDATE tenure.rosters r SET
        default_capacity = coalesce(capacity, r.default_capacity),
        stale_after_ms = coalesce(stale_ms, r.stale_after_ms),
        require_heartbeat = coalesce(heartbeat, r.require_heartbeat),
        snapshot_ms = coalesce(snap_ms, r.snapshot_ms)
    WHERE r.roster = in_roster;
    -- What changes nothing leaves no roster behind.
    IF is_new THEN
        DELETE FROM tenure.rosters r WHERE r.roster = in_roster AND r.version = 0;
    END IF;
    RETURN tenure.end_step(not_after, jsonb_build_object('settings', tenure.settings_json(in_roster)));
END $$;

-- `room`: absent to keep what is there, -1 for the roster's default. The lock on the default comes before that on the
-- provider, as in a change of the default.
CREATE FUNCTION tenure.put_provider(in_roster text, name text, shown text, room integer, not_after bigint)
RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    before tenure.providers;
BEGIN
    PERFORM tenure.begin_step(not_after);
    PERFORM tenure.ensure_roster(in_roster);
    PERFORM tenure.because('operator');
    PERFORM tenure.default_of(in_roster);
    LOOP
        SELECT * INTO before FROM tenure.providers p WHERE p.roster = in_roster AND p.provider = name FOR NO KEY UPDATE;
        IF FOUND THEN
            UPDATE tenure.providers p SET
                display_name = coalesce(shown, p.display_name),
                capacity = CASE WHEN room >= 0 THEN room ELSE p.capacity END,
                uses_default = CASE WHEN room IS NULL THEN p.uses_default ELSE room < 0 END
            WHERE p.roster = in_roster AND p.provider = name;
            EXIT;
        END IF;
        BEGIN
            INSERT INTO tenure.providers (roster, provider, display_name, capacity)
            VALUES (in_roster, name, shown, CASE WHEN room >= 0 THEN room END);
            EXIT;
        EXCEPTION WHEN unique_violation THEN
            -- Somebody else was quicker: it is there now.
        END;
    END LOOP;
    RETURN tenure.end_step(not_after, tenure.provider_change(before, in_roster, name));
END $$;

CREATE FUNCTION tenure.remove_provider(in_roster text, name text, not_after bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    p tenure.providers;
BEGIN
    PERFORM tenure.begin_step(not_after);
    SELECT * INTO p FROM tenure.providers x WHERE x.roster = in_roster AND x.provider = name FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM tenure.rest_on_a_write();
        RETURN tenure.end_step(not_after, '{"outcome": "absent"}');
    END IF;
    IF p.online OR p.occupancy > 0 THEN
        RETURN tenure.end_step(not_after,
            jsonb_build_object('outcome', 'busy', 'row', tenure.rows_json(in_roster, ARRAY[name]) -> 0));
    END IF;
    DELETE FROM tenure.providers x WHERE x.roster = in_roster AND x.provider = name;
    RETURN tenure.end_step(not_after, jsonb_build_object('outcome', 'removed', 'version', (
        SELECT o.version FROM tenure.outbox o WHERE o.roster = in_roster AND o.provider = name)));
END $$;

CREATE FUNCTION tenure.set_active(in_roster text, name text, wanted boolean, not_after bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    before tenure.providers;
BEGIN
    PERFORM tenure.begin_step(not_after);
    before := tenure.lock_provider(in_roster, name);
    PERFORM tenure.because('operator');
    UPDATE tenure.providers p SET active = wanted WHERE p.roster = in_roster AND p.provider = name;
    RETURN tenure.end_step(not_after, tenure.provider_change(before, in_roster, name));
END $$;

CREATE FUNCTION tenure.go_online(in_roster text, name text, tenure_id text, not_after bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    before tenure.providers;
    outcome text := 'done';
BEGIN
    PERFORM tenure.begin_step(not_after);
    before := tenure.lock_provider(in_roster, name);
    PERFORM tenure.because('asked');
    IF NOT before.active THEN
        outcome := 'deactivated';
    ELSIF NOT before.online THEN
        UPDATE tenure.providers p SET online = true, online_tenure = tenure_id
        WHERE p.roster = in_roster AND p.provider = name;
    ELSIF tenure_id <> before.online_tenure THEN
        IF split_part(tenure_id, '@', 2)::bigint > split_part(before.online_tenure, '@', 2)::bigint THEN
            UPDATE tenure.providers p SET online_tenure = tenure_id WHERE p.roster = in_roster AND p.provider = name;
        ELSE
            outcome := 'stale';
        END IF;
    END IF;
    RETURN tenure.end_step(not_after,
        tenure.provider_change(before, in_roster, name) || jsonb_build_object('outcome', outcome));
END $$;

CREATE FUNCTION tenure.go_offline(in_roster text, name text, tenure_id text, not_after bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    before tenure.providers;
BEGIN
    PERFORM tenure.begin_step(not_after);
    before := tenure.lock_provider(in_roster, name);
    PERFORM tenure.because('asked');
    IF before.online AND (tenure_id IS NULL OR tenure_id = before.online_tenure) THEN
        UPDATE tenure.providers p SET online = false WHERE p.roster = in_roster AND p.provider = name;
    END IF;
    RETURN tenure.end_step(not_after, tenure.provider_change(before, in_roster, name));
END $$;

-- Those of a batch who are online under the tenure that it names, locked in order of their names: sorting the list of an
-- UPDATE is no promise of the order in which it locks. Nobody else may be changed afterwards, not even one that has come
-- to match since: a later statement would lock it out of order, and two batches could wait for each other.
CREATE FUNCTION tenure.lock_online(in_roster text, names text[], tenures text[]) RETURNS text[]
LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(array_agg(l.provider), '{}') FROM (
        SELECT p.provider FROM tenure.providers p
        WHERE p.roster = in_roster
          AND (p.provider, p.online_tenure) IN (SELECT * FROM unnest(names, tenures))
        ORDER BY p.provider FOR NO KEY UPDATE) l
$$;

-- Follows the hot store, with one statement per reason, of which there are few. Rows that another transaction is changing are
-- left for a later call: one open transaction of another program must not keep all other providers online. Heartbeats that
-- the hot store did not receive refute that a tenure lapsed.
CREATE FUNCTION tenure.offline_ended(
    in_roster text, names text[], tenures text[], ends bigint[], reasons text[], heards bigint[], not_after bigint
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    why text;
    locked text[];
    busy text[];
    spared text[];
    changed text[] := '{}';
    batch_names text[];
    moment timestamptz;
    fresh_after timestamptz;
BEGIN
    PERFORM tenure.begin_step(not_after);
    locked := ARRAY(
        SELECT p.provider FROM tenure.providers p
        WHERE p.roster = in_roster AND (p.provider, p.online_tenure) IN (SELECT * FROM unnest(names, tenures))
        ORDER BY p.provider FOR NO KEY UPDATE SKIP LOCKED);
    busy := ARRAY(
        SELECT p.provider FROM tenure.providers p
        WHERE p.roster = in_roster AND (p.provider, p.online_tenure) IN (SELECT * FROM unnest(names, tenures))
          AND NOT p.provider = ANY (locked)
        ORDER BY p.provider);
    moment := tenure.ledger_now();
    fresh_after := moment - coalesce(
        (SELECT r.stale_after_ms FROM tenure.rosters r WHERE r.roster = in_roster), 60000) * interval '1 millisecond';
    spared := ARRAY(
        SELECT h.provider FROM unnest(names, tenures, ends, reasons, heards) u (name, tenure_id, ended, reason, heard)
        JOIN tenure.providers x ON x.roster = in_roster AND x.provider = u.name AND x.online_tenure = u.tenure_id
        JOIN tenure.heartbeats h ON h.roster = in_roster AND h.provider = u.name
        WHERE u.name = ANY (locked) AND u.reason = 'lapsed' AND h.heard_at > fresh_after
          AND h.heard_at > tenure.instant(coalesce(u.heard, u.ended)));
    FOR why IN SELECT DISTINCT u.why FROM unnest(reasons) u (why) ORDER BY 1 LOOP
        PERFORM tenure.because('ended:' || why);
        WITH batch AS (
            SELECT DISTINCT ON (u.name) u.name, u.tenure_id, u.ended
            FROM unnest(names, tenures, ends, reasons) u (name, tenure_id, ended, reason)
            JOIN tenure.providers x ON x.roster = in_roster AND x.provider = u.name AND x.online_tenure = u.tenure_id
            WHERE u.reason = why AND u.name = ANY (locked) AND NOT u.name = ANY (spared)
        ), updated AS (
            UPDATE tenure.providers p SET online = false, last_offline_at = least(tenure.instant(b.ended), moment)
            FROM batch b
            WHERE p.roster = in_roster AND p.provider = b.name AND p.online_tenure = b.tenure_id
            RETURNING p.provider
        )
        SELECT array_agg(u.provider) INTO batch_names FROM updated u;
        changed := changed || coalesce(batch_names, '{}');
    END LOOP;
    PERFORM tenure.rest_on_a_write();
    RETURN tenure.end_step(not_after, jsonb_build_object(
        'offline', tenure.rows_json(in_roster, changed), 'spared', tenure.rows_json(in_roster, spared), 'busy', busy));
END $$;

CREATE FUNCTION tenure.follow_tenures(in_roster text, names text[], olds text[], news text[], not_after bigint)
RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    locked text[];
    changed text[];
BEGIN
    PERFORM tenure.begin_step(not_after);
    PERFORM tenure.because('asked');
    locked := tenure.lock_online(in_roster, names, olds);
    WITH updated AS (
        UPDATE tenure.providers p SET online_tenure = u.new_id
        FROM unnest(names, olds, news) u (name, old_id, new_id)
        WHERE p.roster = in_roster AND p.provider = u.name AND u.name = ANY (locked)
          AND p.online_tenure = u.old_id AND u.new_id <> u.old_id
        RETURNING p.provider
    )
    SELECT array_agg(u.provider) INTO changed FROM updated u;
    RETURN tenure.end_step(not_after, jsonb_build_object('items', tenure.rows_json(in_roster, coalesce(changed, '{}'))));
END $$;

-- Each provider is named once, and what is no news is not even locked. Nobody was heard of later than now: a hot store whose
-- clock was ahead for a while would let the dead seem fresh. Nearly all are known, and an update is cheaper than an insert
-- that meets them. One batch of a roster at a time, so that no two wait for each other in whatever order the rows are come
-- to; and planned for the batch at hand, since a plan for any number of rows is one for few.
CREATE FUNCTION tenure.record_heartbeats(in_roster text, names text[], times bigint[], not_after bigint) RETURNS jsonb
LANGUAGE plpgsql SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    moment bigint := tenure.micros(tenure.ledger_now());
    known bigint;
    added bigint := 0;
BEGIN
    PERFORM tenure.begin_step(not_after);
    PERFORM pg_advisory_xact_lock(hashtextextended('tenure.heartbeats ' || in_roster, 0));
    WITH recorded AS (
        UPDATE tenure.heartbeats h SET heard_at = tenure.instant(least(b.heard, moment))
        FROM unnest(names, times) b (name, heard)
        WHERE h.roster = in_roster AND h.provider = b.name AND h.heard_at < tenure.instant(least(b.heard, moment))
        RETURNING 1
    )
    SELECT count(*) INTO known FROM recorded;
    IF known < cardinality(names) THEN
        WITH recorded AS (
            INSERT INTO tenure.heartbeats AS h (roster, provider, heard_at)
            SELECT in_roster, p.provider, tenure.instant(least(b.heard, moment))
            FROM unnest(names, times) b (name, heard)
            JOIN tenure.providers p ON p.roster = in_roster AND p.provider = b.name
            WHERE NOT EXISTS (SELECT FROM tenure.heartbeats k WHERE k.roster = in_roster AND k.provider = b.name)
            ORDER BY p.provider
            ON CONFLICT (roster, provider) DO UPDATE SET heard_at = EXCLUDED.heard_at WHERE h.heard_at < EXCLUDED.heard_at
            RETURNING 1
        )
        SELECT count(*) INTO added FROM recorded;
    END IF;
    RETURN tenure.end_step(not_after, jsonb_build_object('count', known + added));
END $$;

-- A row that somebody is writing anew is passed over: it is about to be newer than what is said here. So this waits for
-- nobody.
CREATE FUNCTION tenure.clean(in_roster text, names text[], versions bigint[], not_after bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    cleaned bigint;
BEGIN
    PERFORM tenure.begin_step(not_after);
    WITH said AS (
        SELECT u.name, max(u.version) AS version FROM unnest(names, versions) u (name, version) GROUP BY u.name
    ), mine AS (
        SELECT o.roster, o.provider FROM tenure.outbox o JOIN said s ON s.name = o.provider
        WHERE o.roster = in_roster AND o.version <= s.version
        FOR UPDATE OF o SKIP LOCKED
    ), gone AS (
        DELETE FROM tenure.outbox o USING mine m WHERE o.roster = m.roster AND o.provider = m.provider RETURNING 1
    )
    SELECT count(*) INTO cleaned FROM gone;
    RETURN tenure.end_step(not_after, jsonb_build_object('count', cleaned));
END $$;

-- Drawing a number is a write, every now and then.
CREATE FUNCTION tenure.next_version(not_after bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tenure.begin_step(not_after);
    RETURN tenure.answer(jsonb_build_object('version', nextval('tenure.versions')));
END $$;

-- How long ago some process confirmed the hot store.
CREATE FUNCTION tenure.hot_store_json(h tenure.hot_store) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT jsonb_build_object('id', (h).id, 'place', (h).place, 'confirmed_ago',
        greatest(tenure.micros(tenure.ledger_now()) - tenure.micros((h).confirmed_at), 0))
$$;

CREATE FUNCTION tenure.read_hot_store() RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT tenure.answer(jsonb_build_object('recorded', (SELECT tenure.hot_store_json(h) FROM tenure.hot_store h)))
$$;

-- `was`: the id that the caller was admitted with before. `unconfirmed`: after this time without a confirmation, no running
-- process reaches the recorded data. A record that was just confirmed is only read.
CREATE FUNCTION tenure.claim_hot_store(
    own_id text, own_place text, was text, replaces boolean, fresh bigint, unconfirmed bigint, not_after bigint
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    h tenure.hot_store;
    moment timestamptz;
BEGIN
    PERFORM tenure.begin_step(not_after);
    SELECT * INTO h FROM tenure.hot_store;
    moment := tenure.ledger_now();
    IF FOUND AND h.id = own_id AND h.place = own_place AND moment - h.confirmed_at < fresh * interval '1 microsecond' THEN
        RETURN tenure.end_step(not_after, '{"recorded": null}');
    END IF;
    INSERT INTO tenure.hot_store (id, place, confirmed_at) VALUES (own_id, own_place, moment) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN tenure.end_step(not_after, '{"recorded": null}');
    END IF;
    SELECT * INTO h FROM tenure.hot_store FOR NO KEY UPDATE;
    moment := tenure.ledger_now();
    IF replaces OR h.id = own_id OR (h.place = own_place
        AND (h.id = was OR moment - h.confirmed_at >= unconfirmed * interval '1 microsecond')) THEN
        UPDATE tenure.hot_store SET id = own_id, place = own_place, confirmed_at = moment;
        RETURN tenure.end_step(not_after, '{"recorded": null}');
    END IF;
    RETURN tenure.end_step(not_after, jsonb_build_object('recorded', tenure.hot_store_json(h)));
END $$;
