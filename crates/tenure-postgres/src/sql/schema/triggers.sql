-- What goes with every change of a row, whoever makes it: a version, the outbox, the log, the occupancy. Being triggers,
-- they see statements of other programs as well as the steps.
--
-- Locks are taken in one order everywhere: an engagement's, then providers' in order of their names, then the outbox' in
-- the same order.

-- Why a step changes providers, for the log; nothing when it is no step. It lasts as long as the transaction.
CREATE FUNCTION tenure.reason() RETURNS text LANGUAGE sql STABLE
AS $$ SELECT nullif(current_setting('tenure.reason', true), '') $$;

CREATE FUNCTION tenure.settings_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW IS DISTINCT FROM OLD THEN
        NEW.version := nextval('tenure.versions');
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER settings_version BEFORE UPDATE ON tenure.rosters
    FOR EACH ROW EXECUTE FUNCTION tenure.settings_version();

CREATE FUNCTION tenure.default_key(in_roster text) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT hashtextextended('tenure.default_capacity ' || in_roster, 0) $$;

-- The default, which no other transaction changes before this one ends: a row that takes the old default is committed
-- before a change looks for the rows that have it. The lock is advisory, because a program that may only write providers
-- cannot lock the row of the roster.
CREATE FUNCTION tenure.default_of(in_roster text) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(tenure.default_key(in_roster));
    RETURN coalesce((SELECT r.default_capacity FROM tenure.rosters r WHERE r.roster = in_roster), 1);
END $$;

-- The row is locked by the time this runs, so versions of one row come in the order of its changes, and the count of its
-- engagements sees all that were committed by those who held the lock before.
CREATE FUNCTION tenure.provider_before() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE TRIGGER provider_before BEFORE INSERT OR UPDATE ON tenure.providers
    FOR EACH ROW EXECUTE FUNCTION tenure.provider_before();

CREATE FUNCTION tenure.provider_removed() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE TRIGGER provider_removed BEFORE DELETE ON tenure.providers
    FOR EACH ROW EXECUTE FUNCTION tenure.provider_removed();

CREATE FUNCTION tenure.providers_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := tenure.ledger_now();
BEGIN
    PERFORM tenure.log_begins(ARRAY(SELECT DISTINCT n.roster FROM new_rows n WHERE n.online));
    INSERT INTO tenure.provider_log (roster, provider, change, reason, logged_at, version)
    SELECT n.roster, n.provider, 'online', coalesce(tenure.reason(), 'edited'), moment, n.version
    FROM new_rows n WHERE n.online ORDER BY n.roster, n.provider;
    INSERT INTO tenure.outbox AS o (roster, provider, version, since)
    SELECT n.roster, n.provider, n.version, moment FROM new_rows n ORDER BY n.roster, n.provider
    ON CONFLICT (roster, provider) DO UPDATE SET version = EXCLUDED.version WHERE o.version < EXCLUDED.version;
    RETURN NULL;
END $$;

CREATE FUNCTION tenure.providers_updated() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := tenure.ledger_now();
    -- 'ended:lapsed' says that a step follows the end of tenures, which lapsed.
    why text := regexp_replace(coalesce(tenure.reason(), 'edited'), '^ended:', '');
BEGIN
    PERFORM tenure.log_begins(ARRAY(
        SELECT DISTINCT n.roster FROM new_rows n JOIN old_rows o ON o.roster = n.roster AND o.provider = n.provider
        WHERE (n.active, n.online) <> (o.active, o.online)));
    INSERT INTO tenure.provider_log (roster, provider, change, reason, logged_at, version)
    SELECT n.roster, n.provider, c.change, c.reason, moment, n.version
    FROM new_rows n
    JOIN old_rows o ON o.roster = n.roster AND o.provider = n.provider
    CROSS JOIN LATERAL (VALUES
        (1, 'activated', why, n.active AND NOT o.active),
        (2, 'deactivated', why, o.active AND NOT n.active),
        (3, 'online', why, n.online AND NOT o.online),
        (4, 'offline', CASE WHEN n.active THEN why ELSE 'deactivated' END, o.online AND NOT n.online)
    ) AS c (place, change, reason, happened)
    WHERE c.happened ORDER BY n.roster, n.provider, c.place;
    INSERT INTO tenure.outbox AS b (roster, provider, version, since)
    SELECT n.roster, n.provider, n.version, moment
    FROM new_rows n
    JOIN old_rows o ON o.roster = n.roster AND o.provider = n.provider
    WHERE n.version <> o.version ORDER BY n.roster, n.provider
    ON CONFLICT (roster, provider) DO UPDATE SET version = EXCLUDED.version WHERE b.version < EXCLUDED.version;
    RETURN NULL;
END $$;

CREATE FUNCTION tenure.providers_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := tenure.ledger_now();
BEGIN
    INSERT INTO tenure.outbox AS b (roster, provider, version, since)
    SELECT o.roster, o.provider, nextval('tenure.versions'), moment
    FROM (SELECT roster, provider FROM old_rows ORDER BY roster, provider) o
    ON CONFLICT (roster, provider) DO UPDATE SET version = EXCLUDED.version WHERE b.version < EXCLUDED.version;
    RETURN NULL;
END $$;

CREATE TRIGGER providers_inserted AFTER INSERT ON tenure.providers REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION tenure.providers_inserted();

CREATE TRIGGER providers_updated AFTER UPDATE ON tenure.providers REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION tenure.providers_updated();

CREATE TRIGGER providers_deleted AFTER DELETE ON tenure.providers REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION tenure.providers_deleted();

-- The deadline of an offer does not end accepted work, which has a time of its own. A step says itself what becomes of the deadline; another program that
-- wants one for the work writes it in the same statement.
CREATE FUNCTION tenure.engagement_before() RETURNS trigger LANGUAGE plpgsql AS $$
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
            NEW.expires_at := tenure.ledger_now() + NEW.active_for;
        END IF;
    END IF;
    NEW.changed_at := CASE WHEN TG_OP = 'INSERT' THEN NEW.created_at ELSE tenure.ledger_now() END;
    NEW.version := nextval('tenure.versions');
    RETURN NEW;
END $$;

CREATE TRIGGER engagement_before BEFORE INSERT OR UPDATE ON tenure.engagements
    FOR EACH ROW EXECUTE FUNCTION tenure.engagement_before();

-- Gives providers of changed engagements a new version, and with it their occupancy. They are locked first: a count that
-- was begun before the lock was had would miss what others committed meanwhile.
CREATE FUNCTION tenure.touch(rosters text[], names text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM tenure.providers p
    WHERE (p.roster, p.provider) IN (SELECT * FROM unnest(rosters, names))
    ORDER BY p.roster, p.provider FOR NO KEY UPDATE;
    -- Any version but its own makes it a change; the trigger gives the right one.
    UPDATE tenure.providers p SET version = 0
    WHERE (p.roster, p.provider) IN (SELECT * FROM unnest(rosters, names));
END $$;

CREATE FUNCTION tenure.engagements_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    rosters text[];
    names text[];
    missing text;
BEGIN
    IF TG_OP = 'INSERT' THEN
        SELECT array_agg(n.roster), array_agg(n.provider) INTO rosters, names
        FROM new_rows n WHERE n.provider IS NOT NULL;
    ELSIF TG_OP = 'DELETE' THEN
        SELECT array_agg(o.roster), array_agg(o.provider) INTO rosters, names
        FROM old_rows o WHERE o.provider IS NOT NULL AND o.status IN ('pending', 'active');
    ELSE
        SELECT array_agg(t.roster), array_agg(t.provider) INTO rosters, names FROM (
            SELECT c.roster, c.provider
            FROM new_rows n
            JOIN old_rows o ON o.roster = n.roster AND o.engagement = n.engagement
            CROSS JOIN LATERAL (VALUES (n.roster, n.provider), (o.roster, o.provider)) AS c (roster, provider)
            WHERE n.version <> o.version AND c.provider IS NOT NULL
        ) t;
    END IF;
    IF names IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM tenure.touch(rosters, names);
    IF TG_OP <> 'DELETE' THEN
        SELECT n.provider INTO missing FROM new_rows n
        WHERE n.provider IS NOT NULL AND n.status IN ('pending', 'active')
          AND NOT EXISTS (SELECT FROM tenure.providers p WHERE p.roster = n.roster AND p.provider = n.provider)
        LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'the roster has no provider %', missing USING ERRCODE = 'TN404';
        END IF;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER engagements_inserted AFTER INSERT ON tenure.engagements REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION tenure.engagements_changed();

CREATE TRIGGER engagements_updated AFTER UPDATE ON tenure.engagements
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION tenure.engagements_changed();

CREATE TRIGGER engagements_deleted AFTER DELETE ON tenure.engagements REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION tenure.engagements_changed();

-- TRUNCATE fires no trigger of rows.
CREATE FUNCTION tenure.engagements_truncated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM tenure.providers p WHERE p.occupancy > 0 ORDER BY p.roster, p.provider FOR NO KEY UPDATE;
    UPDATE tenure.providers p SET version = 0 WHERE p.occupancy > 0;
    RETURN NULL;
END $$;

CREATE TRIGGER engagements_truncated AFTER TRUNCATE ON tenure.engagements
    FOR EACH STATEMENT EXECUTE FUNCTION tenure.engagements_truncated();

-- Gives the new default to the providers that have no capacity of their own, in the transaction that changes it: the next
-- reservation counts with it.
CREATE FUNCTION tenure.default_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(tenure.default_key(NEW.roster));
    PERFORM FROM tenure.providers p
    WHERE p.roster = NEW.roster AND p.uses_default ORDER BY p.provider FOR NO KEY UPDATE;
    UPDATE tenure.providers p SET capacity = NULL
    WHERE p.roster = NEW.roster AND p.uses_default AND p.capacity <> NEW.default_capacity;
    RETURN NULL;
END $$;

-- Other programs may have written providers of a roster that has no row yet.
CREATE TRIGGER default_chosen AFTER INSERT ON tenure.rosters
    FOR EACH ROW WHEN (NEW.default_capacity <> 1) EXECUTE FUNCTION tenure.default_changed();

CREATE TRIGGER default_changed AFTER UPDATE ON tenure.rosters
    FOR EACH ROW WHEN (NEW.default_capacity <> OLD.default_capacity) EXECUTE FUNCTION tenure.default_changed();
