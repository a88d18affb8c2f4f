-- The schema of the ledger, and what was done to it. The schema may be there already, made by somebody with more rights.
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'tenure') THEN
        CREATE SCHEMA tenure;
    END IF;
END $$;

CREATE TABLE tenure.migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
