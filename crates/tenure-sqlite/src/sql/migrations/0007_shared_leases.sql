-- Leases of several holders: one row for each place. Leases that an operator released, and the requests that waited.

CREATE TABLE places (
    grp INTEGER NOT NULL,
    lease TEXT NOT NULL,
    -- From 0; the only one of an exclusive lease.
    place INTEGER NOT NULL,
    tenure TEXT NOT NULL,
    token INTEGER NOT NULL,
    -- How many places the lease has.
    holders INTEGER NOT NULL,
    -- The number of the request that last asked for it, if that would wait.
    request INTEGER,
    -- The revision that reports the release by an operator, and the holder's deadline at that time.
    revoked INTEGER,
    revoked_until_us INTEGER,
    PRIMARY KEY (grp, lease, place)
) WITHOUT ROWID;
INSERT INTO places (grp, lease, place, tenure, token, holders) SELECT grp, lease, 0, tenure, token, 1 FROM leases;
DROP TABLE leases;
ALTER TABLE places RENAME TO leases;

CREATE TABLE reserved_places (
    grp INTEGER NOT NULL,
    lease TEXT NOT NULL,
    place INTEGER NOT NULL,
    member TEXT NOT NULL,
    until_us INTEGER NOT NULL,
    holders INTEGER NOT NULL,
    PRIMARY KEY (grp, lease, place)
) WITHOUT ROWID;
INSERT INTO reserved_places SELECT grp, lease, 0, member, until_us, 1 FROM reserved;
DROP TABLE reserved;
ALTER TABLE reserved_places RENAME TO reserved;

-- Further columns of an event about a lease: the place, and the request that waited.
ALTER TABLE events ADD COLUMN place INTEGER;
ALTER TABLE events ADD COLUMN request INTEGER;
