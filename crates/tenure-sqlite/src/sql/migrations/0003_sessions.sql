-- Sessions, their connections, and what events tell about them.

-- A session with its data, its alias and its place in the index of the disconnected ones, all in one row, so that they
-- cannot drift apart. `reap_us`, `granted_us` and `due_us` are set while it has no connections: when its grace is over,
-- how long that is, and the earliest time at which to look (a lazy index). `data` is a JSON object, which may be long:
-- that is why these rows have an id, and the indexes are small.
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    grp INTEGER NOT NULL,
    session TEXT NOT NULL CHECK (length(session) BETWEEN 1 AND 200 AND session NOT GLOB '*[^A-Za-z0-9._:-]*'),
    epoch INTEGER NOT NULL CHECK (epoch BETWEEN 1 AND 9007199254740991),
    alias TEXT CHECK (length(alias) BETWEEN 1 AND 200 AND alias NOT GLOB '*[^A-Za-z0-9._:-]*'),
    grace_us INTEGER CHECK (grace_us > 0),
    created_us INTEGER NOT NULL CHECK (created_us >= 0),
    updated_us INTEGER NOT NULL CHECK (updated_us >= 0),
    reap_us INTEGER CHECK (reap_us >= 0),
    granted_us INTEGER CHECK (granted_us > 0),
    due_us INTEGER CHECK (due_us >= 0),
    data TEXT NOT NULL,
    UNIQUE (grp, session),
    CHECK ((reap_us IS NULL) = (due_us IS NULL) AND (granted_us IS NULL) = (due_us IS NULL))
) STRICT;
CREATE UNIQUE INDEX sessions_by_alias ON sessions (grp, alias) WHERE alias IS NOT NULL;
CREATE INDEX sessions_active ON sessions (grp, session) WHERE due_us IS NULL;
CREATE INDEX sessions_away ON sessions (grp, due_us, session) WHERE due_us IS NOT NULL;

-- Which tenure holds which connection of which session, and the epoch of its attach.
CREATE TABLE connections (
    grp INTEGER NOT NULL,
    session TEXT NOT NULL,
    connection TEXT NOT NULL,
    tenure TEXT NOT NULL,
    epoch INTEGER NOT NULL CHECK (epoch BETWEEN 1 AND 9007199254740991),
    PRIMARY KEY (grp, session, connection)
) STRICT, WITHOUT ROWID;
CREATE INDEX connections_by_tenure ON connections (grp, tenure, session, connection);

-- What an event about a session tells besides, and how many connections were removed.
ALTER TABLE events ADD COLUMN session TEXT;
ALTER TABLE events ADD COLUMN connection TEXT;
ALTER TABLE events ADD COLUMN alias TEXT;
ALTER TABLE events ADD COLUMN epoch INTEGER;
ALTER TABLE events ADD COLUMN connections INTEGER;
