-- The tables of the roster ledger. Other programs may write to them with plain SQL: what goes with a change (a version,
-- the outbox, the log, the occupancy) is made by triggers, which need nothing but SQLite itself.
--
-- All times are microseconds since the Unix epoch on the ledger's clock; a tenure is `provider@term`.

-- One row: the ledger's clock never starts below `high_water_us`.
CREATE TABLE clock (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    high_water_us INTEGER NOT NULL
) STRICT;
INSERT INTO clock (one, high_water_us) VALUES (1, 0);

-- One row: the last version that was given out, which stays below 2^53 because versions travel through JSON and Lua; and
-- what the step in progress says of itself. `at_us` is empty outside of steps: then a statement is another program's.
CREATE TABLE steps (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    last_version INTEGER NOT NULL CHECK (last_version BETWEEN 0 AND 9007199254740991),
    at_us INTEGER,
    reason TEXT,
    -- The step follows the hot store, and says itself when somebody went offline.
    follows INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO steps (one, last_version) VALUES (1, 0);

-- The time and the reason of what is being done. The wall clock by way of the Julian day, which all versions of SQLite have.
CREATE VIEW moment (at_us, reason, follows) AS
SELECT coalesce(s.at_us, max(c.high_water_us, CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER))),
       CASE WHEN s.at_us IS NULL THEN 'edited' ELSE s.reason END,
       s.at_us IS NOT NULL AND s.follows
FROM steps s, clock c;

CREATE TABLE rosters (
    roster TEXT NOT NULL PRIMARY KEY CHECK (length(roster) BETWEEN 1 AND 200 AND roster NOT GLOB '*[^A-Za-z0-9._:-]*'),
    default_capacity INTEGER NOT NULL DEFAULT 1 CHECK (default_capacity BETWEEN 0 AND 100000),
    stale_after_ms INTEGER NOT NULL DEFAULT 60000 CHECK (stale_after_ms BETWEEN 1000 AND 86400000),
    require_heartbeat INTEGER NOT NULL DEFAULT 1 CHECK (require_heartbeat IN (0, 1)),
    snapshot_ms INTEGER NOT NULL DEFAULT 10000 CHECK (snapshot_ms BETWEEN 0 AND 10000),
    version INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- `active` is what the operator wants, `online` what was observed. `occupancy` is derived from the engagements whenever the
-- row changes; writing it does nothing. A provider without a capacity of its own (`uses_default`) has the roster's default,
-- also after that has changed; an empty `capacity` in a statement gives it the default. `idle_us`: since its occupancy last
-- changed, or since it came online; of several providers with room the one that has been idle longest is next.
CREATE TABLE providers (
    roster TEXT NOT NULL CHECK (length(roster) BETWEEN 1 AND 200 AND roster NOT GLOB '*[^A-Za-z0-9._:-]*'),
    provider TEXT NOT NULL CHECK (length(provider) BETWEEN 1 AND 200 AND provider NOT GLOB '*[^A-Za-z0-9._:-]*'),
    display_name TEXT CHECK (length(CAST(display_name AS BLOB)) <= 256),
    active INTEGER NOT NULL DEFAULT 1 CHECK (active IN (0, 1)),
    online INTEGER NOT NULL DEFAULT 0 CHECK (online IN (0, 1)),
    online_tenure TEXT CHECK (
        substr(online_tenure, 1, length(provider) + 1) = provider || '@'
        AND substr(online_tenure, length(provider) + 2) GLOB '[1-9]*'
        AND substr(online_tenure, length(provider) + 2) NOT GLOB '*[^0-9]*'
        AND CAST(substr(online_tenure, length(provider) + 2) AS INTEGER) <= 9007199254740991),
    capacity INTEGER CHECK (capacity BETWEEN 0 AND 100000),
    occupancy INTEGER NOT NULL DEFAULT 0,
    last_online_us INTEGER CHECK (last_online_us >= 0),
    last_offline_us INTEGER CHECK (last_offline_us >= 0),
    revoked_before_us INTEGER CHECK (revoked_before_us >= 0),
    version INTEGER NOT NULL DEFAULT 0,
    uses_default INTEGER NOT NULL DEFAULT 0 CHECK (uses_default IN (0, 1)),
    idle_us INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (roster, provider)
) STRICT, WITHOUT ROWID;

-- "Who is available, least occupied first" reads as many entries of this as it answers.
CREATE INDEX providers_free ON providers (roster, occupancy, provider)
    WHERE online AND active AND occupancy < capacity;
CREATE INDEX providers_idle ON providers (roster, occupancy, idle_us, provider)
    WHERE online AND active AND occupancy < capacity;
CREATE INDEX providers_online ON providers (roster, provider) WHERE online;

-- Apart, narrow and without an index on the time, so that writing it down touches nothing else.
CREATE TABLE heartbeats (
    roster TEXT NOT NULL,
    provider TEXT NOT NULL,
    heard_us INTEGER NOT NULL CHECK (heard_us >= 0),
    PRIMARY KEY (roster, provider)
) STRICT, WITHOUT ROWID;

-- An empty `created_us` becomes the time of the insert. `active_for_us`: how long it may be active.
CREATE TABLE engagements (
    roster TEXT NOT NULL CHECK (length(roster) BETWEEN 1 AND 200 AND roster NOT GLOB '*[^A-Za-z0-9._:-]*'),
    engagement TEXT NOT NULL CHECK (length(engagement) BETWEEN 1 AND 200 AND engagement NOT GLOB '*[^A-Za-z0-9._:-]*'),
    provider TEXT,
    status TEXT NOT NULL CHECK (status IN ('pending', 'active', 'ended', 'expired', 'cancelled')),
    created_us INTEGER CHECK (created_us >= 0),
    changed_us INTEGER,
    expires_us INTEGER CHECK (expires_us >= 0),
    active_for_us INTEGER CHECK (active_for_us > 0),
    version INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (roster, engagement)
) STRICT, WITHOUT ROWID;

CREATE INDEX engagements_open ON engagements (roster, provider) WHERE status IN ('pending', 'active');
CREATE INDEX engagements_due ON engagements (roster, expires_us, engagement)
    WHERE status IN ('pending', 'active') AND expires_us IS NOT NULL;

CREATE INDEX engagements_closed ON engagements (roster, changed_us) WHERE status NOT IN ('pending', 'active');

CREATE TABLE provider_log (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    roster TEXT NOT NULL,
    provider TEXT NOT NULL,
    change TEXT NOT NULL CHECK (change IN ('activated', 'deactivated', 'online', 'offline')),
    reason TEXT NOT NULL,
    logged_us INTEGER NOT NULL,
    version INTEGER NOT NULL
) STRICT;

-- Entries of an index come in order of the id.
CREATE INDEX provider_log_roster ON provider_log (roster);
CREATE INDEX provider_log_provider ON provider_log (roster, provider);

-- Rows that may not have reached the mirror. One whose provider is gone stands for its tombstone.
CREATE TABLE outbox (
    roster TEXT NOT NULL,
    provider TEXT NOT NULL,
    version INTEGER NOT NULL,
    since_us INTEGER NOT NULL,
    PRIMARY KEY (roster, provider)
) STRICT, WITHOUT ROWID;

CREATE INDEX outbox_oldest ON outbox (roster, version);

-- Tokens that were void when a provider was removed stay void if it is written again.
CREATE TABLE revocations (
    roster TEXT NOT NULL,
    provider TEXT NOT NULL,
    before_us INTEGER NOT NULL,
    PRIMARY KEY (roster, provider)
) STRICT, WITHOUT ROWID;

-- Providers with their heartbeats.
CREATE VIEW provider_rows AS
SELECT p.roster, p.provider, p.display_name, p.active, p.online, p.online_tenure, p.capacity, p.occupancy,
       p.last_online_us, p.last_offline_us, h.heard_us, p.revoked_before_us, p.version
FROM providers p LEFT JOIN heartbeats h ON h.roster = p.roster AND h.provider = p.provider;
