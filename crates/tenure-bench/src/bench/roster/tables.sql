-- As an application without a hot store keeps it.
CREATE TABLE drivers (
    id text PRIMARY KEY,
    online boolean NOT NULL,
    capacity int NOT NULL,
    heard_at timestamptz NOT NULL
);
CREATE TABLE rides (id bigserial PRIMARY KEY, driver text NOT NULL, ended_at timestamptz);
CREATE INDEX ON rides (driver) WHERE ended_at IS NULL;
