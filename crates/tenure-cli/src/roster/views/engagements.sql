
-- The words of the application for what Tenure calls pending, active, ended, expired and cancelled.
CREATE FUNCTION {status_of}(word text) RETURNS text LANGUAGE sql IMMUTABLE AS $words$
    SELECT CASE word
        {words_to_tenure}
        ELSE 'unknown' END
$words$;

-- Tenure ends pending and active engagements at their deadline. That of an offer does not hold for accepted work.
INSERT INTO tenure.engagements (roster, engagement, provider, status{columns})
SELECT '{roster}', r.{id}::text, r.{provider}::text, {status_of}(r.{status}::text){copied}
FROM {table} r;

-- The old table keeps the rest, under another name; foreign keys to it go along.
ALTER TABLE {table} RENAME TO {details_bare};
ALTER TABLE {details}
    {dropped};
CREATE UNIQUE INDEX {details_index} ON {details} (({id}::text) COLLATE "C");
CREATE INDEX {provider_index} ON tenure.engagements (roster, provider);

CREATE VIEW {table} AS
SELECT {shown}
FROM {details} r
JOIN tenure.engagements e ON e.roster = '{roster}' AND e.engagement = r.{id}::text;

CREATE FUNCTION {write}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $write$
DECLARE
    still {table};
BEGIN
    IF TG_OP = 'INSERT' THEN
{?defaults}        -- What was a default of a column.
{?defaults}        {defaults}
{?no_defaults}        NULL;
    END IF;
{?required}    IF TG_OP <> 'DELETE' AND ({required}) THEN
{?required}        RAISE EXCEPTION '{table_text} needs {required_text}' USING ERRCODE = '23502';
{?required}    END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO {details} ({details_columns}) {overriding}VALUES ({details_written});
        INSERT INTO tenure.engagements (roster, engagement, provider, status{columns})
        VALUES ('{roster}', NEW.{id}::text, NEW.{provider}::text, {status_of}(NEW.{status}::text){written});
        RETURN NEW;
    END IF;

    -- The row as the statement has read it, without a lock: is it still the same?
    PERFORM FROM tenure.engagements e WHERE e.roster = '{roster}' AND e.engagement = OLD.{id}::text FOR UPDATE;
    PERFORM FROM {details} r WHERE r.{id} = OLD.{id} FOR UPDATE;
    SELECT * INTO still FROM {table} v WHERE v.{id} = OLD.{id};
    IF still.{id} IS NULL OR still *<> OLD THEN
        RAISE EXCEPTION '{table_text} %: the row was changed concurrently', OLD.{id} USING ERRCODE = '40001';
    END IF;

    IF TG_OP = 'DELETE' THEN
        DELETE FROM tenure.engagements e WHERE e.roster = '{roster}' AND e.engagement = OLD.{id}::text;
        DELETE FROM {details} r WHERE r.{id} = OLD.{id};
        RETURN OLD;
    END IF;
    IF {keeps_changed} THEN
        RAISE EXCEPTION '{table_text} %: a row keeps its {keeps_text}', OLD.{id} USING ERRCODE = '23514';
    END IF;
    -- What is over does not begin again: Tenure's own steps refuse it as well.
    IF {status_of}(OLD.{status}::text) IN ('ended', 'expired', 'cancelled')
       AND ({status_of}(NEW.{status}::text), NEW.{provider}::text)
           IS DISTINCT FROM ({status_of}(OLD.{status}::text), OLD.{provider}::text) THEN
        RAISE EXCEPTION '{table_text} % is %', OLD.{id}, OLD.{status} USING ERRCODE = '23514';
    END IF;
    UPDATE tenure.engagements e
    SET provider = NEW.{provider}::text, status = {status_of}(NEW.{status}::text){expiry_set}
    WHERE e.roster = '{roster}' AND e.engagement = OLD.{id}::text;
{?details_set}    UPDATE {details} r SET {details_set}
{?details_set}    WHERE r.{id} = OLD.{id} AND ROW({details_now}) IS DISTINCT FROM ROW({details_new});
    RETURN NEW;
END $write$;

CREATE TRIGGER {trigger} INSTEAD OF INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION {write}();
