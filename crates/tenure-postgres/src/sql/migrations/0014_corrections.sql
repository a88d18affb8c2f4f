-- A commit that waited for a synchronous standby and was told to stop is here and may not be there. The step that repeats
-- it finds its work done, and must not answer before the standby has it: a transaction that wrote something waits for all
-- that was committed before. One that has locked a row has written something; one that has not, calls this.
CREATE FUNCTION tenure.rest_on_a_write() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF pg_current_xact_id_if_assigned() IS NULL THEN
        PERFORM pg_logical_emit_message(true, 'tenure', '');
    END IF;
END $$;

CREATE OR REPLACE FUNCTION tenure.remove_provider(in_roster text, name text, not_after bigint) RETURNS jsonb
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

-- Drawing a number is a write, every now and then.
DROP FUNCTION tenure.next_version();
CREATE FUNCTION tenure.next_version(not_after bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tenure.begin_step(not_after);
    RETURN tenure.answer(jsonb_build_object('version', nextval('tenure.versions')));
END $$;

-- Of several providers with room the one that has been idle longest gets the next engagement: since its occupancy last
-- changed, or since it came online.
ALTER TABLE tenure.providers ADD COLUMN idle_since timestamptz NOT NULL DEFAULT '-infinity';

CREATE INDEX providers_idle ON tenure.providers (roster, occupancy, idle_since, provider)
    WHERE online AND active AND occupancy < capacity;

-- Tokens that were void when a provider was removed stay void if it is written again.
CREATE TABLE tenure.revocations (
    roster text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    revoked_before timestamptz NOT NULL,
    PRIMARY KEY (roster, provider)
);

CREATE OR REPLACE FUNCTION tenure.provider_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM tenure.engagements e
               WHERE e.roster = OLD.roster AND e.provider = OLD.provider AND e.status IN ('pending', 'active')) THEN
        RAISE EXCEPTION 'the provider % has open engagements', OLD.provider USING ERRCODE = '23503';
    END IF;
    IF OLD.revoked_before IS NOT NULL THEN
        INSERT INTO tenure.revocations AS r (roster, provider, revoked_before)
        VALUES (OLD.roster, OLD.provider, OLD.revoked_before)
        ON CONFLICT (roster, provider) DO UPDATE SET revoked_before = greatest(r.revoked_before, EXCLUDED.revoked_before);
    END IF;
    RETURN OLD;
END $$;

-- As before, but for `idle_since`, and `revoked_before` of a new row.
CREATE OR REPLACE FUNCTION tenure.provider_before() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz;
    was_online boolean := false;
    had_default boolean := false;
    seen tenure.providers;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        had_default := OLD.uses_default;
        -- Another number is one of its own.
        IF NEW.capacity <> OLD.capacity AND NEW.uses_default = had_default THEN
            NEW.uses_default := false;
        END IF;
    END IF;
    NEW.uses_default := NEW.uses_default OR NEW.capacity IS NULL;
    IF NEW.capacity IS NULL OR (NEW.uses_default AND NOT had_default) THEN
        NEW.capacity := tenure.default_of(NEW.roster);
    END IF;
    IF TG_OP = 'UPDATE' THEN
        -- Where the number comes from is not in the mirror: the row keeps its version.
        seen := NEW;
        seen.uses_default := had_default;
        IF seen IS NOT DISTINCT FROM OLD THEN
            RETURN NEW;
        END IF;
        IF (NEW.roster, NEW.provider) IS DISTINCT FROM (OLD.roster, OLD.provider) THEN
            RAISE EXCEPTION 'a provider keeps its name; write a new one and remove the old' USING ERRCODE = '23514';
        END IF;
        was_online := OLD.online;
    ELSE
        NEW.revoked_before := greatest(NEW.revoked_before, (
            SELECT r.revoked_before FROM tenure.revocations r
            WHERE r.roster = NEW.roster AND r.provider = NEW.provider));
    END IF;
    moment := tenure.ledger_now();
    IF TG_OP = 'UPDATE' AND OLD.active AND NOT NEW.active THEN
        NEW.online := false;
        NEW.revoked_before := greatest(OLD.revoked_before, moment);
    END IF;
    IF NOT NEW.online THEN
        NEW.online_tenure := NULL;
    ELSIF NEW.online_tenure IS NULL THEN
        NEW.online_tenure := NEW.provider || '@' || tenure.micros(moment);
    END IF;
    IF NEW.online AND NOT was_online THEN
        NEW.last_online_at := moment;
    END IF;
    -- A step that follows the hot store says itself when it was.
    IF was_online AND NOT NEW.online AND coalesce(tenure.reason(), '') NOT LIKE 'ended:%' THEN
        NEW.last_offline_at := moment;
    END IF;
    NEW.occupancy := (
        SELECT count(*) FROM tenure.engagements e
        WHERE e.roster = NEW.roster AND e.provider = NEW.provider AND e.status IN ('pending', 'active'));
    IF TG_OP = 'INSERT' OR NEW.occupancy <> OLD.occupancy OR (NEW.online AND NOT was_online) THEN
        NEW.idle_since := moment;
    END IF;
    NEW.version := nextval('tenure.versions');
    RETURN NEW;
END $$;

-- The deadline of an offer does not end accepted work. A step says itself what becomes of the deadline; another program that
-- wants one for the work writes it in the same statement.
CREATE OR REPLACE FUNCTION tenure.engagement_before() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW IS NOT DISTINCT FROM OLD THEN
            RETURN NEW;
        END IF;
        IF (NEW.roster, NEW.engagement) IS DISTINCT FROM (OLD.roster, OLD.engagement) THEN
            RAISE EXCEPTION 'an engagement keeps its name' USING ERRCODE = '23514';
        END IF;
        IF OLD.status = 'pending' AND NEW.status = 'active' AND NEW.expires_at IS NOT DISTINCT FROM OLD.expires_at
           AND tenure.reason() IS NULL THEN
            NEW.expires_at := NULL;
        END IF;
    END IF;
    NEW.changed_at := CASE WHEN TG_OP = 'INSERT' THEN NEW.created_at ELSE tenure.ledger_now() END;
    NEW.version := nextval('tenure.versions');
    RETURN NEW;
END $$;

-- `expires_in`: absent for the rule above, 0 for never.
CREATE OR REPLACE FUNCTION tenure.move_engagement(
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
    wanted.provider := coalesce(to_provider, e.provider);
    IF e.status IN ('pending', 'active') THEN
        wanted.expires_at := CASE
            WHEN expires_in = 0 THEN NULL
            WHEN expires_in > 0 THEN tenure.ledger_now() + expires_in * interval '1 microsecond'
            WHEN e.status = 'pending' AND to_status = 'active' THEN NULL
            ELSE e.expires_at END;
    ELSIF wanted IS DISTINCT FROM e THEN
        RETURN tenure.end_step(not_after,
            jsonb_build_object('outcome', 'conflict', 'engagement', tenure.engagement_json(e)));
    END IF;
    IF wanted IS NOT DISTINCT FROM e THEN
        RETURN tenure.end_step(not_after, tenure.engagement_change(e.provider, in_roster, name, false));
    END IF;
    IF wanted.provider IS DISTINCT FROM e.provider
       AND NOT EXISTS (SELECT FROM tenure.providers p WHERE p.roster = in_roster AND p.provider = wanted.provider) THEN
        RAISE EXCEPTION 'the roster has no provider %', wanted.provider USING ERRCODE = 'TN404';
    END IF;
    UPDATE tenure.engagements x
    SET status = wanted.status, provider = wanted.provider, expires_at = wanted.expires_at
    WHERE x.roster = in_roster AND x.engagement = name;
    RETURN tenure.end_step(not_after, tenure.engagement_change(e.provider, in_roster, name, true));
END $$;

-- As before, but an engagement that is over is not created again.
CREATE OR REPLACE FUNCTION tenure.create_engagement(
    in_roster text, name text, whose text, begin_as text, expires_in bigint, not_after bigint
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
    INSERT INTO tenure.engagements (roster, engagement, provider, status, expires_at)
    VALUES (in_roster, name, whose, begin_as, tenure.ledger_now() + expires_in * interval '1 microsecond');
    RETURN tenure.end_step(not_after, tenure.engagement_change(whose, in_roster, name, true));
END $$;

-- The least occupied candidate with room, of several the one that has been idle longest, locked; nothing if none of those
-- that no other transaction is changing has room. `among`: absent for all that are fresh.
DROP FUNCTION tenure.take_at_once(text, text[], bigint);
CREATE FUNCTION tenure.take_at_once(in_roster text, among text[], fresh_since bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    taken text;
BEGIN
    IF among IS NULL THEN
        SELECT p.provider INTO taken FROM tenure.providers p
        WHERE p.roster = in_roster AND p.online AND p.active AND p.occupancy < p.capacity
          AND (fresh_since IS NULL OR tenure.is_fresh(p, fresh_since))
        ORDER BY p.occupancy, p.idle_since, p.provider LIMIT 1
        FOR NO KEY UPDATE OF p SKIP LOCKED;
    ELSE
        SELECT p.provider INTO taken FROM tenure.providers p
        WHERE p.roster = in_roster AND p.provider = ANY (among) AND p.online AND p.active AND p.occupancy < p.capacity
        ORDER BY p.occupancy, p.idle_since, p.provider LIMIT 1
        FOR NO KEY UPDATE OF p SKIP LOCKED;
    END IF;
    RETURN taken;
END $$;

-- A provider with room, by a count of its engagements: other programs can write engagements without triggers.
CREATE FUNCTION tenure.take_counted(in_roster text, among text[], fresh_since bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    taken text;
BEGIN
    LOOP
        taken := tenure.take(in_roster, among, fresh_since);
        IF taken IS NULL OR EXISTS (
            SELECT FROM tenure.providers p WHERE p.roster = in_roster AND p.provider = taken AND p.capacity > (
                SELECT count(*) FROM tenure.engagements e
                WHERE e.roster = in_roster AND e.provider = taken AND e.status IN ('pending', 'active'))) THEN
            RETURN taken;
        END IF;
        PERFORM tenure.touch(ARRAY[in_roster], ARRAY[taken]);
    END LOOP;
END $$;

DROP FUNCTION tenure.reserve(text, text, text[], bigint, text, bigint, bigint);
CREATE FUNCTION tenure.reserve(
    in_roster text, name text, among text[], fresh_since bigint, begin_as text, expires_in bigint, not_after bigint
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
    IF is_known AND e.status NOT IN ('pending', 'active') THEN
        RETURN tenure.end_step(not_after,
            jsonb_build_object('outcome', 'conflict', 'engagement', tenure.engagement_json(e)));
    END IF;
    IF is_known AND e.provider IS NOT NULL THEN
        RETURN tenure.end_step(not_after, tenure.engagement_change(e.provider, in_roster, name, false));
    END IF;
    whose := tenure.take_counted(in_roster, among, fresh_since);
    IF whose IS NULL THEN
        RETURN tenure.end_step(not_after, '{"outcome": "none_available"}');
    END IF;
    IF is_known THEN
        UPDATE tenure.engagements x SET provider = whose WHERE x.roster = in_roster AND x.engagement = name;
    ELSE
        INSERT INTO tenure.engagements (roster, engagement, provider, status, expires_at)
        VALUES (in_roster, name, whose, begin_as, tenure.ledger_now() + expires_in * interval '1 microsecond');
    END IF;
    RETURN tenure.end_step(not_after, tenure.engagement_change(whose, in_roster, name, true));
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

-- TRUNCATE fires no trigger of rows.
CREATE FUNCTION tenure.engagements_truncated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM tenure.providers p WHERE p.occupancy > 0 ORDER BY p.roster, p.provider FOR NO KEY UPDATE;
    UPDATE tenure.providers p SET version = 0 WHERE p.occupancy > 0;
    RETURN NULL;
END $$;

CREATE TRIGGER engagements_truncated AFTER TRUNCATE ON tenure.engagements
    FOR EACH STATEMENT EXECUTE FUNCTION tenure.engagements_truncated();

-- Rows that another transaction is changing are left for a later call: one open transaction of another program must not keep
-- all other providers online. Heartbeats that the hot store did not receive refute that a tenure lapsed.
DROP FUNCTION tenure.offline_ended(text, text[], text[], bigint[], text[], bigint);
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
