
-- What Tenure keeps of the providers goes into its tables. One that may not work is not online.
INSERT INTO tenure.providers (roster, provider{columns})
SELECT '{roster}', d.{id}::text{copied}
FROM {table} d ORDER BY d.{id}::text COLLATE "C";

{?heard}INSERT INTO tenure.heartbeats (roster, provider, heard_at)
{?heard}SELECT '{roster}', d.{id}::text, {heard_copied} FROM {table} d WHERE d.{heard} IS NOT NULL;

-- The old table keeps the rest, under another name; foreign keys to it go along.
ALTER TABLE {table} RENAME TO {details_bare};
{?dropped}ALTER TABLE {details}
{?dropped}    {dropped};
CREATE UNIQUE INDEX {details_index} ON {details} (({id}::text) COLLATE "C");

CREATE VIEW {table} AS
SELECT {shown}
FROM {details} d
JOIN tenure.providers p ON p.roster = '{roster}' AND p.provider = d.{id}::text;

CREATE FUNCTION {write}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $write$
DECLARE
    still {table};
BEGIN
    IF TG_OP = 'INSERT' THEN
{?heard}        IF NEW.{heard} IS NOT NULL THEN
{?heard}            RAISE EXCEPTION '{heard_text} is the heartbeat of Tenure; send one to it' USING ERRCODE = '0A000';
{?heard}        END IF;
{?defaults}        -- What was a default of a column.
{?defaults}        {defaults}
{?no_defaults}        NULL;
    END IF;
{?required}    IF TG_OP <> 'DELETE' AND ({required}) THEN
{?required}        RAISE EXCEPTION '{table_text} needs {required_text}' USING ERRCODE = '23502';
{?required}    END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO {details} ({details_columns}) {overriding}VALUES ({details_written});
        INSERT INTO tenure.providers (roster, provider{columns})
        VALUES ('{roster}', NEW.{id}::text{written});
        RETURN NEW;
    END IF;

    -- The row as the statement has read it, without a lock: is it still the same?
    PERFORM FROM tenure.providers p WHERE p.roster = '{roster}' AND p.provider = OLD.{id}::text FOR UPDATE;
    PERFORM FROM {details} d WHERE d.{id} = OLD.{id} FOR UPDATE;
    SELECT * INTO still FROM {table} v WHERE v.{id} = OLD.{id};
{?heard}    -- A heartbeat is no reason to try again.
{?heard}    still.{heard} := OLD.{heard};
    IF still.{id} IS NULL OR still *<> OLD THEN
        RAISE EXCEPTION '{table_text} %: the row was changed concurrently', OLD.{id} USING ERRCODE = '40001';
    END IF;

    IF TG_OP = 'DELETE' THEN
        DELETE FROM tenure.providers p WHERE p.roster = '{roster}' AND p.provider = OLD.{id}::text;
        DELETE FROM {details} d WHERE d.{id} = OLD.{id};
        RETURN OLD;
    END IF;
{?heard}    IF NEW.{heard} IS DISTINCT FROM OLD.{heard} THEN
{?heard}        RAISE EXCEPTION '{heard_text} is the heartbeat of Tenure; send one to it' USING ERRCODE = '0A000';
{?heard}    END IF;
    IF NEW.{id} IS DISTINCT FROM OLD.{id} THEN
        RAISE EXCEPTION '{table_text} %: a row keeps its {id_text}', OLD.{id} USING ERRCODE = '23514';
    END IF;
{?set}    UPDATE tenure.providers p
{?set}    SET {set}
{?set}    WHERE p.roster = '{roster}' AND p.provider = OLD.{id}::text;
{?details_set}    UPDATE {details} d SET {details_set}
{?details_set}    WHERE d.{id} = OLD.{id} AND ROW({details_now}) IS DISTINCT FROM ROW({details_new});
    RETURN NEW;
END $write$;

CREATE TRIGGER {trigger} INSTEAD OF INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION {write}();
