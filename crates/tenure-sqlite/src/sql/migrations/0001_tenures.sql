-- The first schema: groups, members, ended tenures, claims and events.
-- All times are microseconds of store time since the Unix epoch, all spans microseconds; `tenure` is `member@term`.

-- What a group knows about itself. `tick_us` is the last step that is known to have been served.
CREATE TABLE meta (
    grp INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    born_us INTEGER NOT NULL,
    tick_us INTEGER NOT NULL,
    resumed_us INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    last_event INTEGER NOT NULL,
    oldest_event INTEGER NOT NULL,
    min_ttl_us INTEGER,
    max_ttl_us INTEGER,
    unsettled_cause TEXT,
    unsettled_until_us INTEGER,
    brake_since_us INTEGER,
    brake_until_us INTEGER
);

-- One row for the whole file: store time never starts below `high_water_us`.
CREATE TABLE clock (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    high_water_us INTEGER NOT NULL
);
INSERT INTO clock (one, high_water_us) VALUES (1, 0);

-- Who has a current tenure. `deadline_us` is the one of the join or of the last change of the ttl: beats are kept in
-- memory alone.
CREATE TABLE members (
    grp INTEGER NOT NULL,
    member TEXT NOT NULL,
    term INTEGER NOT NULL,
    ttl_us INTEGER NOT NULL,
    deadline_us INTEGER NOT NULL,
    labels TEXT NOT NULL,
    PRIMARY KEY (grp, member)
) WITHOUT ROWID;

-- Why tenures ended. `visit_us` is set while holdings are left to release, and tells when to look next.
CREATE TABLE ended (
    grp INTEGER NOT NULL,
    tenure TEXT NOT NULL,
    reason TEXT NOT NULL,
    lapsed INTEGER NOT NULL,
    end_us INTEGER NOT NULL,
    ended_us INTEGER NOT NULL,
    forget_us INTEGER NOT NULL,
    visit_us INTEGER,
    PRIMARY KEY (grp, tenure)
) WITHOUT ROWID;
CREATE INDEX ended_to_forget ON ended (grp, forget_us) WHERE visit_us IS NULL;
CREATE INDEX ended_to_release ON ended (grp, lapsed, visit_us, tenure) WHERE visit_us IS NOT NULL;

-- Members that lapsed and are not back, for the brake.
CREATE TABLE lapses (
    grp INTEGER NOT NULL,
    member TEXT NOT NULL,
    at_us INTEGER NOT NULL,
    PRIMARY KEY (grp, member)
) WITHOUT ROWID;
CREATE INDEX lapses_by_time ON lapses (grp, at_us);

-- Who owns which key. `registry` carries the slash that ends it in the text of a holding (`registry/key`), so that
-- rows sort as those texts do.
CREATE TABLE claims (
    grp INTEGER NOT NULL,
    registry TEXT NOT NULL,
    key TEXT NOT NULL,
    tenure TEXT NOT NULL,
    PRIMARY KEY (grp, registry, key)
) WITHOUT ROWID;
CREATE INDEX claims_by_tenure ON claims (grp, tenure, registry, key);

-- What happened. `counts` is a JSON object, `keys` a JSON list.
CREATE TABLE events (
    grp INTEGER NOT NULL,
    id INTEGER NOT NULL,
    at_us INTEGER NOT NULL,
    kind TEXT NOT NULL,
    tenure TEXT,
    reason TEXT,
    pass TEXT,
    counts TEXT,
    keys TEXT,
    PRIMARY KEY (grp, id)
) WITHOUT ROWID;
