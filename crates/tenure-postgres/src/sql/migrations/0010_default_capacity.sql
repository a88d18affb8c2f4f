-- A provider without a capacity of its own has the roster's default, also after that has changed. The number in its row is
-- derived from the default, as its occupancy is from its engagements. A row from before this migration keeps its number as
-- its own: nothing tells whether it was a default. An empty `capacity` in a statement gives the provider the default.
ALTER TABLE tenure.providers ADD COLUMN uses_default boolean NOT NULL DEFAULT false;

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

-- As before, but for the capacity.
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
    NEW.version := nextval('tenure.versions');
    RETURN NEW;
END $$;

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

-- `room`: absent to keep what is there, -1 for the roster's default. The lock on the default comes before that on the
-- provider, as in a change of the default.
CREATE OR REPLACE FUNCTION tenure.put_provider(in_roster text, name text, shown text, room integer, not_after bigint)
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
