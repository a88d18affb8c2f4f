-- A fence for writes to Postgres: a write with an outdated token is rejected.
--
-- Run this file once in the schema of the application, as the owner of its tables; it can be run again. Then call the
-- function with each write, in the same transaction or, better, in the same statement:
--
--     INSERT INTO readings (device, value) SELECT 'device-7', 21 FROM tenure_fence('device-7', 42);
--
-- A token equal to or above the resource's mark is admitted and becomes the mark; a lower one fails the statement, and
-- with it the transaction, with SQLSTATE TF001. The mark is stored with the data that it protects: one commit, one
-- backup, one failover. The session keeps no state, so any pooler works.
--
-- Writers need SELECT, INSERT and UPDATE on the table of marks.

CREATE TABLE IF NOT EXISTS tenure_fence_marks (
  resource text PRIMARY KEY,
  token bigint NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991)
);

COMMENT ON TABLE tenure_fence_marks IS 'The highest fencing token admitted for each resource';

-- Admits the token, or raises. Until the transaction ends, a higher token waits and an equal one does not. So all writes
-- of a holder are complete before the first write of its successor begins. An equal token, the usual case, writes no new
-- version of the mark.
--
-- Under REPEATABLE READ and SERIALIZABLE, a mark that changed since the transaction began is a serialization failure
-- (40001); a retry shows whether the token is still admitted.
CREATE OR REPLACE FUNCTION tenure_fence(resource text, token bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
-- The schema in which the function is created, whatever the search path of the caller.
SET search_path FROM CURRENT
AS $$
DECLARE
  seen bigint;
BEGIN
  IF resource IS NULL OR token IS NULL OR token NOT BETWEEN 1 AND 9007199254740991 THEN
    RAISE EXCEPTION 'a fence takes a resource and a token from 1 to 2^53-1, not % and %', resource, token
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- Each pass reads the mark again, because other transactions may have changed it since. Marks only rise, so the loop
  -- ends.
  LOOP
    SELECT mark.token INTO seen FROM tenure_fence_marks mark WHERE mark.resource = tenure_fence.resource;
    IF NOT FOUND THEN
      INSERT INTO tenure_fence_marks (resource, token) VALUES (resource, token) ON CONFLICT DO NOTHING;
    ELSIF seen < token THEN
      UPDATE tenure_fence_marks mark SET token = tenure_fence.token
        WHERE mark.resource = tenure_fence.resource AND mark.token < tenure_fence.token;
    ELSIF seen = token THEN
      -- Another transaction may be raising the mark: this waits for its end, and then finds no row with this mark.
      PERFORM FROM tenure_fence_marks mark
        WHERE mark.resource = tenure_fence.resource AND mark.token = tenure_fence.token FOR SHARE;
    ELSE
      RAISE EXCEPTION 'fenced: % has seen the token %, and % is older', resource, seen, token
        USING ERRCODE = 'TF001', HINT = 'Another holder took over. Stop, and acquire the lease again before you write.';
    END IF;
    IF FOUND THEN
      RETURN token;
    END IF;
  END LOOP;
END
$$;

-- For a table in which each row carries the token of its last writer, in a column `fence_token bigint`:
--
--     CREATE TRIGGER fence BEFORE INSERT OR UPDATE ON devices FOR EACH ROW EXECUTE FUNCTION tenure_fence_row();
--
-- It cannot detect whether a statement sets the column: one that does not counts as a write of the last writer. A
-- deleted row loses its mark. Where either matters, use the function.
CREATE OR REPLACE FUNCTION tenure_fence_row() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  IF NEW.fence_token IS NULL OR NEW.fence_token NOT BETWEEN 1 AND 9007199254740991 THEN
    RAISE EXCEPTION 'a row of % takes a fence_token from 1 to 2^53-1, not %', TG_TABLE_NAME, NEW.fence_token
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF TG_OP = 'UPDATE' AND NEW.fence_token < OLD.fence_token THEN
    RAISE EXCEPTION 'fenced: a row of % has seen the token %, and % is older', TG_TABLE_NAME, OLD.fence_token, NEW.fence_token
      USING ERRCODE = 'TF001', HINT = 'Another holder took over. Stop, and acquire the lease again before you write.';
  END IF;
  RETURN NEW;
END
$$;
