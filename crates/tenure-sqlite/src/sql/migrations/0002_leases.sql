-- Leases, the reservations of those that were handed off, targets, and the revision of what a member holds.

-- The number of what the tenure holds; 0 until it holds anything.
ALTER TABLE members ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;

-- Who holds which lease, and the token of the grant.
CREATE TABLE leases (
    grp INTEGER NOT NULL,
    lease TEXT NOT NULL,
    tenure TEXT NOT NULL,
    token INTEGER NOT NULL,
    PRIMARY KEY (grp, lease)
) WITHOUT ROWID;
CREATE INDEX leases_by_tenure ON leases (grp, tenure, lease, token);

-- Leases that were handed off and wait for their successor until then.
CREATE TABLE reserved (
    grp INTEGER NOT NULL,
    lease TEXT NOT NULL,
    member TEXT NOT NULL,
    until_us INTEGER NOT NULL,
    PRIMARY KEY (grp, lease)
) WITHOUT ROWID;
CREATE INDEX reserved_by_time ON reserved (grp, until_us, lease);

-- What there is to work on.
CREATE TABLE targets (
    grp INTEGER NOT NULL,
    target TEXT NOT NULL,
    paused INTEGER NOT NULL,
    weight INTEGER NOT NULL,
    PRIMARY KEY (grp, target)
) WITHOUT ROWID;

-- What an event about a lease or a target tells besides: which one, the token, whom it was taken over from, and whom it
-- is kept for.
ALTER TABLE events ADD COLUMN lease TEXT;
ALTER TABLE events ADD COLUMN token INTEGER;
ALTER TABLE events ADD COLUMN from_tenure TEXT;
ALTER TABLE events ADD COLUMN to_member TEXT;
