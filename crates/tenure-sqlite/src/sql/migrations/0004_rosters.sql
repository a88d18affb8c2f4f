-- Rosters: the hot copy of the ledger's rows, and whom the ledger has to follow.

-- What is known of a roster as a whole. The settings are empty until some have arrived.
CREATE TABLE rosters (
    grp INTEGER PRIMARY KEY,
    high INTEGER NOT NULL CHECK (high >= 0),
    seeded INTEGER NOT NULL CHECK (seeded IN (0, 1)),
    settings_version INTEGER CHECK (settings_version >= 0),
    default_capacity INTEGER CHECK (default_capacity >= 0),
    stale_after_us INTEGER CHECK (stale_after_us >= 0),
    require_heartbeat INTEGER CHECK (require_heartbeat IN (0, 1)),
    snapshot_us INTEGER CHECK (snapshot_us >= 0),
    CHECK ((settings_version IS NULL) = (default_capacity IS NULL) AND (settings_version IS NULL) = (stale_after_us IS NULL)
        AND (settings_version IS NULL) = (require_heartbeat IS NULL) AND (settings_version IS NULL) = (snapshot_us IS NULL))
) STRICT;

-- Rosters whose members are being given the ttl of the settings, and up to whom they have it.
CREATE TABLE retiming (
    grp INTEGER PRIMARY KEY,
    member TEXT NOT NULL
) STRICT;

-- The ledger's rows. Who is alive is not in here: when the file is opened, what is in memory is made from these rows and
-- those of the members. `followed` is set once the ledger has been told that the tenure in `online` is over.
CREATE TABLE providers (
    grp INTEGER NOT NULL,
    provider TEXT NOT NULL CHECK (length(provider) BETWEEN 1 AND 200 AND provider NOT GLOB '*[^A-Za-z0-9._:-]*'),
    version INTEGER NOT NULL CHECK (version >= 0),
    display_name TEXT,
    active INTEGER NOT NULL CHECK (active IN (0, 1)),
    online TEXT,
    capacity INTEGER NOT NULL CHECK (capacity BETWEEN 0 AND 4294967295),
    occupancy INTEGER NOT NULL CHECK (occupancy BETWEEN 0 AND 4294967295),
    last_online_us INTEGER CHECK (last_online_us >= 0),
    last_offline_us INTEGER CHECK (last_offline_us >= 0),
    revoked_us INTEGER CHECK (revoked_us >= 0),
    followed INTEGER NOT NULL DEFAULT 0 CHECK (followed IN (0, 1)),
    PRIMARY KEY (grp, provider)
) STRICT, WITHOUT ROWID;

-- What was removed, in which version and when, so that a slow writer of an old row cannot bring it back.
CREATE TABLE removed_providers (
    grp INTEGER NOT NULL,
    provider TEXT NOT NULL CHECK (length(provider) BETWEEN 1 AND 200 AND provider NOT GLOB '*[^A-Za-z0-9._:-]*'),
    version INTEGER NOT NULL CHECK (version >= 0),
    removed_us INTEGER NOT NULL CHECK (removed_us >= 0),
    PRIMARY KEY (grp, provider)
) STRICT, WITHOUT ROWID;
CREATE INDEX removed_providers_by_time ON removed_providers (grp, removed_us);

-- Ended tenures that rows name and that the ledger has to follow. `ended_us` is when the store ended it, `at_us` the time
-- of the end for the ledger, `heard_us` empty when it had ended before the row arrived.
CREATE TABLE offlined (
    grp INTEGER NOT NULL,
    tenure TEXT NOT NULL,
    lapsed INTEGER NOT NULL CHECK (lapsed = (reason = 'lapsed')),
    ended_us INTEGER NOT NULL CHECK (ended_us >= 0),
    at_us INTEGER NOT NULL CHECK (at_us >= 0),
    reason TEXT NOT NULL,
    heard_us INTEGER CHECK (heard_us >= 0),
    PRIMARY KEY (grp, tenure)
) STRICT, WITHOUT ROWID;
CREATE INDEX offlined_by_time ON offlined (grp, lapsed, ended_us, tenure);

-- Whose turn it is at what one instance does for all, until when, and when it was done last.
CREATE TABLE turns (
    grp INTEGER NOT NULL,
    task TEXT NOT NULL,
    holder TEXT,
    until_us INTEGER CHECK (until_us >= 0),
    done_us INTEGER CHECK (done_us >= 0),
    PRIMARY KEY (grp, task)
) STRICT, WITHOUT ROWID;
