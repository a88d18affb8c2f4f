-- Whether the schema is there. By a look at the catalogue: what this connection remembers of names may be older than the
-- lock that it has just waited for.
SELECT EXISTS (
    SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'tenure' AND c.relname = 'migrations');
