-- A fence for writes to Postgres: who comes with an older token is refused.
--
-- Run this file once in the schema of the application, as the owner of its tables; running it again is harmless. Then
-- call the function with each write, in the same transaction or, better, in the same statement:
--
--     INSERT INTO readings (device, value) SELECT 'device-7', 21 FROM tenure_fence('device-7', 42);
--
-- A token equal to the resource's mark or above it is admitted and becomes the mark; a lower one ends the statement, and
-- with it the transaction, with SQLSTATE TF001. The mark lives and dies with the data that it protects: one commit, one
-- backup, one failover. Nothing is kept in the session, so any pooler will do.
--
-- Writers need SELECT, INSERT and UPDATE on the table of marks.

CREATE TABLE IF NOT EXISTS tenure_fence_marks (
  resource text PRIMARY KEY,
  token bigint NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991)
);

COMMENT ON TABLE tenure_fence_marks IS 'The highest fencing token admitted for each resource';

-- Admits the token, or raises. Until the transaction ends a higher token waits and transactions with the same one do
-- not, so that all writes of a holder are over before the first of its successor begins. An equal token, which is what
-- comes nearly always, writes no new version of the mark.
--
-- Under REPEATABLE READ and SERIALIZABLE a mark that has changed since the transaction began is a serialization failure
-- (40001), and trying again tells whether the token is still good.
CREATE OR REPLACE FUNCTION tenure_fence(resource text, token bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
-- The schema that it is created in, wherever the caller looks for its own tables.
SET search_path FROM CURRENT
AS $$
DECLARE
  seen bigint;
BEGIN
  IF resource IS NULL OR token IS NULL OR token NOT BETWEEN 1 AND 9007199254740991 THEN
    RAISE EXCEPTION 'a fence takes a resource and a token from 1 to 2^53-1, not % and %', resource, token
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- Each turn looks anew, since others may have acted between a look and what followed from it. Marks only rise, so
  -- this ends.
  LOOP
    SELECT mark.token INTO seen FROM tenure_fence_marks mark WHERE mark.resource = tenure_fence.resource;
    IF NOT FOUND THEN
      INSERT INTO tenure_fence_marks (resource, token) VALUES (resource, token) ON CONFLICT DO NOTHING;
    ELSIF seen < token THEN
      UPDATE tenure_fence_marks mark SET token = tenure_fence.token
        WHERE mark.resource = tenure_fence.resource AND mark.token < tenure_fence.token;
    ELSIF seen = token THEN
      -- The mark may be rising in a transaction that is not over: this waits for it, and then finds no such mark.
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
-- It cannot see whether a statement sets the column: one that leaves it alone is taken to come from the last writer. And
-- a row that is deleted takes its mark with it. Where either matters, use the function.
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
