-- The log is read in the order of its numbers, and transactions commit in another: a reader who saw number 7 would never see
-- number 6 of one that commits later. So every transaction that is about to write entries of a roster says below which
-- numbers all others are given out already, by a lock that ends with it; and a reader of the roster reads no further than the
-- lowest of these. A transaction that stays open holds back the log of its rosters and of no other, except for those that
-- share the 16 bits that a lock has of a name.

-- The upper half marks the locks of the log. One key stands for all rosters.
CREATE FUNCTION tenure.log_key(in_roster text) RETURNS integer LANGUAGE sql IMMUTABLE
AS $$ SELECT 1952776192 | (hashtext(in_roster) & 65535) $$;

-- One lock for each roster of a transaction, before its first number is drawn; one for all if they are many. With the rights
-- of the schema's owner: who may write entries need not be allowed to look at the sequence.
CREATE FUNCTION tenure.log_begins(rosters text[]) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    given bigint;
    known text := coalesce(current_setting('tenure.logging', true), '');
    one text;
BEGIN
    IF known = '*' THEN
        RETURN;
    END IF;
    IF cardinality(rosters) > 50 OR length(known) > 10000 THEN
        rosters := ARRAY['*'];
    END IF;
    FOREACH one IN ARRAY rosters LOOP
        CONTINUE WHEN position(' ' || one || ' ' IN known) > 0;
        SELECT CASE WHEN s.is_called THEN s.last_value ELSE 0 END INTO given FROM tenure.provider_log_id_seq s;
        PERFORM pg_advisory_xact_lock_shared(
            CASE one WHEN '*' THEN 1952804469 ELSE tenure.log_key(one) END, (given % 2147483648)::integer);
        known := CASE one WHEN '*' THEN '*' ELSE known || ' ' || one || ' ' END;
    END LOOP;
    PERFORM set_config('tenure.logging', known, true);
END $$;

-- Entries of another program.
CREATE FUNCTION tenure.log_written() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(current_setting('tenure.logging', true), '') = '' THEN
        PERFORM tenure.log_begins(ARRAY['*']);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER log_written BEFORE INSERT ON tenure.provider_log
    FOR EACH STATEMENT EXECUTE FUNCTION tenure.log_written();

-- The number up to which every entry is written or never will be. The sequence is read first: a writer with a number up
-- to that had its lock before. Locks have 31 bits of a number, and one that is ahead of the sequence is of no concern.
CREATE FUNCTION tenure.log_decided(in_roster text) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    given bigint;
    lowest bigint;
BEGIN
    SELECT CASE WHEN s.is_called THEN s.last_value ELSE 0 END INTO given FROM tenure.provider_log_id_seq s;
    SELECT min(given - b.behind) INTO lowest
    FROM pg_locks l
    CROSS JOIN LATERAL (SELECT (given - l.objid::bigint) & 2147483647) AS b (behind)
    WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid IN (1952804469::oid, tenure.log_key(in_roster)::oid)
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND b.behind < 1073741824;
    RETURN coalesce(lowest, given);
END $$;
