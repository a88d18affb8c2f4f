-- The log is read in the order of its numbers, and transactions commit in another: a reader who saw number 7 would never see
-- number 6 of one that commits later. So every transaction that is about to write entries says below which numbers all
-- others are given out already, by a lock that ends with it; and a reader reads no further than the lowest of these.

-- One lock for each transaction, before its first number is drawn. With the rights of the schema's owner: who may write
-- entries need not be allowed to look at the sequence.
CREATE FUNCTION tenure.log_begins() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    given bigint;
BEGIN
    IF current_setting('tenure.logging', true) = 'yes' THEN
        RETURN NULL;
    END IF;
    SELECT CASE WHEN s.is_called THEN s.last_value ELSE 0 END INTO given FROM tenure.provider_log_id_seq s;
    PERFORM pg_advisory_xact_lock_shared(1952804469, (given % 2147483648)::integer);
    PERFORM set_config('tenure.logging', 'yes', true);
    RETURN NULL;
END $$;

CREATE TRIGGER log_begins BEFORE INSERT ON tenure.provider_log
    FOR EACH STATEMENT EXECUTE FUNCTION tenure.log_begins();

-- The number up to which every entry is written or never will be. The sequence is read first: whoever drew a number up to
-- that had its lock before. Locks have 31 bits of a number, and one that is ahead of the sequence is of no concern.
CREATE FUNCTION tenure.log_decided() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    given bigint;
    lowest bigint;
BEGIN
    SELECT CASE WHEN s.is_called THEN s.last_value ELSE 0 END INTO given FROM tenure.provider_log_id_seq s;
    SELECT min(given - b.behind) INTO lowest
    FROM pg_locks l
    CROSS JOIN LATERAL (SELECT (given - l.objid::bigint) & 2147483647) AS b (behind)
    WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid = 1952804469::oid
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND b.behind < 1073741824;
    RETURN coalesce(lowest, given);
END $$;
