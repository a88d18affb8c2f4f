-- The tables of the roster ledger, and the clock and the sequence that they live by.
--
-- Everything is named with its schema: behind a pooler there is no session to keep a search path in.

-- The ledger's clock. Every step reads the time through this function and nothing else.
CREATE FUNCTION tenure.ledger_now() RETURNS timestamptz LANGUAGE sql VOLATILE
AS $$ SELECT clock_timestamp() $$;

-- STABLE, as what they are made of is: a body that is less so than it says is not put in the place of its call, and a call
-- for each row is most of what a batch costs.
CREATE FUNCTION tenure.micros(moment timestamptz) RETURNS bigint LANGUAGE sql STABLE
AS $$ SELECT CASE WHEN isfinite(moment) THEN (extract(epoch FROM moment) * 1000000)::bigint END $$;

CREATE FUNCTION tenure.instant(micros bigint) RETURNS timestamptz LANGUAGE sql STABLE
AS $$ SELECT timestamptz 'epoch' + micros * interval '1 microsecond' $$;

-- Versions stay below 2^53: they travel through JSON and Lua.
CREATE SEQUENCE tenure.versions AS bigint MAXVALUE 9007199254740991 NO CYCLE;

CREATE TABLE tenure.rosters (
    roster text COLLATE "C" PRIMARY KEY CHECK (roster ~ '^[A-Za-z0-9._:-]{1,200}$' AND roster NOT IN ('.', '..')),
    default_capacity integer NOT NULL DEFAULT 1 CHECK (default_capacity BETWEEN 0 AND 100000),
    stale_after_ms bigint NOT NULL DEFAULT 60000 CHECK (stale_after_ms BETWEEN 1000 AND 86400000),
    require_heartbeat boolean NOT NULL DEFAULT true,
    snapshot_ms bigint NOT NULL DEFAULT 10000 CHECK (snapshot_ms BETWEEN 0 AND 10000),
    version bigint NOT NULL DEFAULT 0
);

-- One row: the hot store. Two with one ledger would take each other's providers offline.
CREATE TABLE tenure.hot_store (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id text NOT NULL,
    place text NOT NULL,
    confirmed_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- `active` is what the operator wants, `online` what was observed. `occupancy` is derived from the engagements whenever the
-- row changes; writing it does nothing. A provider without a capacity of its own (`uses_default`) has the roster's default,
-- also after that has changed; an empty `capacity` in a statement gives it the default. `idle_since`: since its occupancy
-- last changed, or since it came online; of several providers with room the one that has been idle longest is next.
CREATE TABLE tenure.providers (
    roster text COLLATE "C" NOT NULL CHECK (roster ~ '^[A-Za-z0-9._:-]{1,200}$'),
    provider text COLLATE "C" NOT NULL CHECK (provider ~ '^[A-Za-z0-9._:-]{1,200}$' AND provider NOT IN ('.', '..')),
    display_name text,
    active boolean NOT NULL DEFAULT true,
    online boolean NOT NULL DEFAULT false,
    online_tenure text COLLATE "C",
    capacity integer NOT NULL CHECK (capacity BETWEEN 0 AND 100000),
    occupancy integer NOT NULL DEFAULT 0,
    last_online_at timestamptz,
    last_offline_at timestamptz,
    revoked_before timestamptz,
    version bigint NOT NULL DEFAULT 0,
    uses_default boolean NOT NULL DEFAULT false,
    idle_since timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (roster, provider),
    CHECK (online = (online_tenure IS NOT NULL)),
    CHECK (active OR NOT online),
    -- Of this provider and no other: one row that nobody can read would hold up its whole roster.
    CHECK (left(online_tenure, length(provider) + 1) = provider || '@'
        AND substr(online_tenure, length(provider) + 2) ~ '^[1-9][0-9]{0,15}$')
) WITH (fillfactor = 80);

-- "Who is available, least occupied first" reads as many entries of this as it answers.
CREATE INDEX providers_free ON tenure.providers (roster, occupancy, provider)
    WHERE online AND active AND occupancy < capacity;

CREATE INDEX providers_idle ON tenure.providers (roster, occupancy, idle_since, provider)
    WHERE online AND active AND occupancy < capacity;
CREATE INDEX providers_online ON tenure.providers (roster, provider) WHERE online;

-- Apart, narrow and without an index on the time, so that writing it down touches no index and fits beside the old one.
CREATE TABLE tenure.heartbeats (
    roster text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    heard_at timestamptz NOT NULL,
    PRIMARY KEY (roster, provider),
    FOREIGN KEY (roster, provider) REFERENCES tenure.providers ON DELETE CASCADE
) WITH (fillfactor = 50);

-- `active_for`: how long it may be active.
CREATE TABLE tenure.engagements (
    roster text COLLATE "C" NOT NULL CHECK (roster ~ '^[A-Za-z0-9._:-]{1,200}$'),
    engagement text COLLATE "C" NOT NULL CHECK (engagement ~ '^[A-Za-z0-9._:-]{1,200}$'),
    provider text COLLATE "C",
    status text NOT NULL CHECK (status IN ('pending', 'active', 'ended', 'expired', 'cancelled')),
    created_at timestamptz NOT NULL DEFAULT tenure.ledger_now(),
    changed_at timestamptz NOT NULL DEFAULT tenure.ledger_now(),
    expires_at timestamptz,
    active_for interval CHECK (active_for > interval '0'),
    version bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (roster, engagement)
);

CREATE INDEX engagements_open ON tenure.engagements (roster, provider) WHERE status IN ('pending', 'active');

CREATE INDEX engagements_due ON tenure.engagements (roster, expires_at)
    WHERE status IN ('pending', 'active') AND expires_at IS NOT NULL;

CREATE INDEX engagements_closed ON tenure.engagements (roster, changed_at) WHERE status NOT IN ('pending', 'active');

CREATE TABLE tenure.provider_log (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    roster text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    change text NOT NULL CHECK (change IN ('activated', 'deactivated', 'online', 'offline')),
    reason text NOT NULL,
    logged_at timestamptz NOT NULL,
    version bigint NOT NULL
);

CREATE INDEX provider_log_roster ON tenure.provider_log (roster, id);

CREATE INDEX provider_log_provider ON tenure.provider_log (roster, provider, id);

-- Rows that may not have reached the mirror. One whose provider is gone stands for its tombstone.
CREATE TABLE tenure.outbox (
    roster text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    since timestamptz NOT NULL,
    PRIMARY KEY (roster, provider)
) WITH (fillfactor = 50);

CREATE INDEX outbox_oldest ON tenure.outbox (roster, version);

-- Tokens that were void when a provider was removed stay void if it is written again.
CREATE TABLE tenure.revocations (
    roster text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    revoked_before timestamptz NOT NULL,
    PRIMARY KEY (roster, provider)
);

-- Heartbeats that a process without the hot store waits for, and the passes that write them down.
CREATE TABLE tenure.heartbeat_passes (
    roster text COLLATE "C" PRIMARY KEY,
    wanted_until timestamptz,
    fresh_since timestamptz,
    passed_at timestamptz
) WITH (fillfactor = 50);
