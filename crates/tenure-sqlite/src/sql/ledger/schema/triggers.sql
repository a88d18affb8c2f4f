-- What goes with every change of a row, whoever makes it: a version, the outbox, the log, the occupancy.
--
-- A trigger of SQLite cannot change the row on its way, so it writes it once more. That second writing brings the version
-- that was given out last, and by this it is known and left alone, also where triggers recurse.
--
-- Without `INDEXED BY`, SQLite counts by the primary key, and reads all engagements of the roster for each change.
--
-- No statement here says OR IGNORE or OR REPLACE: a conflict clause of the statement that fired the trigger would take its
-- place.

CREATE TRIGGER settings_written AFTER INSERT ON rosters
WHEN (NEW.default_capacity, NEW.stale_after_ms, NEW.require_heartbeat, NEW.snapshot_ms) IS NOT (1, 60000, 1, 10000)
BEGIN
    UPDATE steps SET last_version = last_version + 1;
    UPDATE rosters SET version = (SELECT last_version FROM steps) WHERE roster = NEW.roster;
END;

CREATE TRIGGER settings_changed AFTER UPDATE ON rosters
WHEN (NEW.version = OLD.version OR NEW.version <> (SELECT last_version FROM steps))
 AND (NEW.roster, NEW.default_capacity, NEW.stale_after_ms, NEW.require_heartbeat, NEW.snapshot_ms, NEW.version)
     IS NOT (OLD.roster, OLD.default_capacity, OLD.stale_after_ms, OLD.require_heartbeat, OLD.snapshot_ms, OLD.version)
BEGIN
    SELECT RAISE(ABORT, 'a roster keeps its name') WHERE NEW.roster <> OLD.roster;
    UPDATE steps SET last_version = last_version + 1;
    UPDATE rosters SET version = (SELECT last_version FROM steps) WHERE roster = NEW.roster;
    UPDATE providers SET capacity = NULL
    WHERE roster = NEW.roster AND uses_default AND capacity <> NEW.default_capacity;
END;

CREATE TRIGGER provider_written AFTER INSERT ON providers
BEGIN
    SELECT RAISE(ABORT, 'a deactivated provider cannot be online') WHERE NEW.online AND NOT NEW.active;
    INSERT INTO rosters (roster)
    SELECT NEW.roster WHERE NOT EXISTS (SELECT 1 FROM rosters WHERE roster = NEW.roster);
    UPDATE steps SET last_version = last_version + 1;
    UPDATE providers SET
        online_tenure = CASE WHEN NEW.online THEN
            coalesce(NEW.online_tenure, NEW.provider || '@' || (SELECT at_us FROM moment)) END,
        capacity = CASE WHEN NEW.uses_default OR NEW.capacity IS NULL THEN
            (SELECT default_capacity FROM rosters WHERE roster = NEW.roster) ELSE NEW.capacity END,
        uses_default = NEW.uses_default OR NEW.capacity IS NULL,
        occupancy = (
            SELECT count(*) FROM engagements INDEXED BY engagements_open
            WHERE roster = NEW.roster AND provider = NEW.provider AND status IN ('pending', 'active')),
        last_online_us = CASE WHEN NEW.online THEN (SELECT at_us FROM moment) ELSE NEW.last_online_us END,
        idle_us = (SELECT at_us FROM moment),
        revoked_before_us = coalesce(
            (SELECT max(before_us, coalesce(NEW.revoked_before_us, 0)) FROM revocations
             WHERE roster = NEW.roster AND provider = NEW.provider),
            NEW.revoked_before_us),
        version = (SELECT last_version FROM steps)
    WHERE roster = NEW.roster AND provider = NEW.provider;
    INSERT INTO provider_log (roster, provider, change, reason, logged_us, version)
    SELECT NEW.roster, NEW.provider, 'online', m.reason, m.at_us, s.last_version
    FROM moment m, steps s WHERE NEW.online;
    INSERT INTO outbox (roster, provider, version, since_us)
    SELECT NEW.roster, NEW.provider, s.last_version, m.at_us FROM steps s, moment m WHERE true
    ON CONFLICT (roster, provider) DO UPDATE SET version = excluded.version;
END;

CREATE TRIGGER provider_changed AFTER UPDATE ON providers
WHEN (NEW.version = OLD.version OR NEW.version <> (SELECT last_version FROM steps))
 AND (NEW.roster, NEW.provider, NEW.display_name, NEW.active, NEW.online, NEW.online_tenure, NEW.capacity, NEW.occupancy,
      NEW.last_online_us, NEW.last_offline_us, NEW.revoked_before_us, NEW.version)
     IS NOT (OLD.roster, OLD.provider, OLD.display_name, OLD.active, OLD.online, OLD.online_tenure, OLD.capacity,
             OLD.occupancy, OLD.last_online_us, OLD.last_offline_us, OLD.revoked_before_us, OLD.version)
BEGIN
    SELECT RAISE(ABORT, 'a provider keeps its name; write a new one and remove the old')
    WHERE (NEW.roster, NEW.provider) IS NOT (OLD.roster, OLD.provider);
    SELECT RAISE(ABORT, 'a deactivated provider cannot be online') WHERE NEW.online AND NOT NEW.active AND NOT OLD.active;
    UPDATE steps SET last_version = last_version + 1;
    -- Who is deactivated goes offline.
    UPDATE providers SET
        online = NEW.online AND NEW.active,
        online_tenure = CASE WHEN NEW.online AND NEW.active THEN
            coalesce(NEW.online_tenure, NEW.provider || '@' || (SELECT at_us FROM moment)) END,
        capacity = coalesce(NEW.capacity, (SELECT default_capacity FROM rosters WHERE roster = NEW.roster)),
        -- Another number is one of its own.
        uses_default = NEW.capacity IS NULL
            OR NEW.uses_default AND (NEW.capacity IS OLD.capacity OR NOT OLD.uses_default),
        occupancy = (
            SELECT count(*) FROM engagements INDEXED BY engagements_open
            WHERE roster = NEW.roster AND provider = NEW.provider AND status IN ('pending', 'active')),
        last_online_us = CASE WHEN NEW.online AND NEW.active AND NOT OLD.online THEN
            (SELECT at_us FROM moment) ELSE NEW.last_online_us END,
        last_offline_us = CASE WHEN OLD.online AND NOT (NEW.online AND NEW.active) AND NOT (SELECT follows FROM moment) THEN
            (SELECT at_us FROM moment) ELSE NEW.last_offline_us END,
        revoked_before_us = CASE WHEN OLD.active AND NOT NEW.active THEN
            max(coalesce(OLD.revoked_before_us, 0), (SELECT at_us FROM moment)) ELSE NEW.revoked_before_us END,
        idle_us = CASE WHEN NEW.online AND NEW.active AND NOT OLD.online OR OLD.occupancy <> (
            SELECT count(*) FROM engagements INDEXED BY engagements_open
            WHERE roster = NEW.roster AND provider = NEW.provider AND status IN ('pending', 'active'))
            THEN (SELECT at_us FROM moment) ELSE NEW.idle_us END,
        version = (SELECT last_version FROM steps)
    WHERE roster = NEW.roster AND provider = NEW.provider;
    INSERT INTO provider_log (roster, provider, change, reason, logged_us, version)
    SELECT NEW.roster, NEW.provider, 'activated', m.reason, m.at_us, s.last_version
    FROM moment m, steps s WHERE NEW.active AND NOT OLD.active;
    INSERT INTO provider_log (roster, provider, change, reason, logged_us, version)
    SELECT NEW.roster, NEW.provider, 'deactivated', m.reason, m.at_us, s.last_version
    FROM moment m, steps s WHERE OLD.active AND NOT NEW.active;
    INSERT INTO provider_log (roster, provider, change, reason, logged_us, version)
    SELECT NEW.roster, NEW.provider, 'online', m.reason, m.at_us, s.last_version
    FROM moment m, steps s WHERE NEW.online AND NEW.active AND NOT OLD.online;
    INSERT INTO provider_log (roster, provider, change, reason, logged_us, version)
    SELECT NEW.roster, NEW.provider, 'offline', CASE WHEN NEW.active THEN m.reason ELSE 'deactivated' END, m.at_us,
           s.last_version
    FROM moment m, steps s WHERE OLD.online AND NOT (NEW.online AND NEW.active);
    INSERT INTO outbox (roster, provider, version, since_us)
    SELECT NEW.roster, NEW.provider, s.last_version, m.at_us FROM steps s, moment m WHERE true
    ON CONFLICT (roster, provider) DO UPDATE SET version = excluded.version;
END;

CREATE TRIGGER provider_going BEFORE DELETE ON providers
BEGIN
    SELECT RAISE(ABORT, 'the provider has open engagements') WHERE EXISTS (
        SELECT 1 FROM engagements INDEXED BY engagements_open
        WHERE roster = OLD.roster AND provider = OLD.provider AND status IN ('pending', 'active'));
END;

CREATE TRIGGER provider_removed AFTER DELETE ON providers
BEGIN
    DELETE FROM heartbeats WHERE roster = OLD.roster AND provider = OLD.provider;
    INSERT INTO revocations (roster, provider, before_us)
    SELECT OLD.roster, OLD.provider, OLD.revoked_before_us WHERE OLD.revoked_before_us IS NOT NULL
    ON CONFLICT (roster, provider) DO UPDATE SET before_us = max(before_us, excluded.before_us);
    UPDATE steps SET last_version = last_version + 1;
    INSERT INTO outbox (roster, provider, version, since_us)
    SELECT OLD.roster, OLD.provider, s.last_version, m.at_us FROM steps s, moment m WHERE true
    ON CONFLICT (roster, provider) DO UPDATE SET version = excluded.version;
END;

-- A version of nought is any but its own: it makes the row of the provider a changed one, and the trigger of that table
-- gives it the right version, and its occupancy.
CREATE TRIGGER engagement_written AFTER INSERT ON engagements
BEGIN
    SELECT RAISE(ABORT, 'the roster has no such provider')
    WHERE NEW.provider IS NOT NULL AND NEW.status IN ('pending', 'active')
      AND NOT EXISTS (SELECT 1 FROM providers WHERE roster = NEW.roster AND provider = NEW.provider);
    INSERT INTO rosters (roster)
    SELECT NEW.roster WHERE NOT EXISTS (SELECT 1 FROM rosters WHERE roster = NEW.roster);
    UPDATE steps SET last_version = last_version + 1;
    UPDATE engagements SET
        created_us = coalesce(NEW.created_us, (SELECT at_us FROM moment)),
        changed_us = coalesce(NEW.created_us, (SELECT at_us FROM moment)),
        version = (SELECT last_version FROM steps)
    WHERE roster = NEW.roster AND engagement = NEW.engagement;
    UPDATE providers SET version = 0 WHERE roster = NEW.roster AND provider = NEW.provider;
END;

CREATE TRIGGER engagement_changed AFTER UPDATE ON engagements
WHEN (NEW.version = OLD.version OR NEW.version <> (SELECT last_version FROM steps))
 AND (NEW.roster, NEW.engagement, NEW.provider, NEW.status, NEW.created_us, NEW.changed_us, NEW.expires_us,
      NEW.active_for_us, NEW.version)
     IS NOT (OLD.roster, OLD.engagement, OLD.provider, OLD.status, OLD.created_us, OLD.changed_us, OLD.expires_us,
             OLD.active_for_us, OLD.version)
BEGIN
    SELECT RAISE(ABORT, 'an engagement keeps its name')
    WHERE (NEW.roster, NEW.engagement) IS NOT (OLD.roster, OLD.engagement);
    SELECT RAISE(ABORT, 'the roster has no such provider')
    WHERE NEW.provider IS NOT NULL AND NEW.status IN ('pending', 'active')
      AND NOT EXISTS (SELECT 1 FROM providers WHERE roster = NEW.roster AND provider = NEW.provider);
    UPDATE steps SET last_version = last_version + 1;
    UPDATE engagements SET
        created_us = coalesce(NEW.created_us, OLD.created_us),
        changed_us = (SELECT at_us FROM moment),
        version = (SELECT last_version FROM steps)
    WHERE roster = NEW.roster AND engagement = NEW.engagement;
    UPDATE providers SET version = 0 WHERE roster = NEW.roster AND provider IN (OLD.provider, NEW.provider);
END;

CREATE TRIGGER engagement_removed AFTER DELETE ON engagements WHEN OLD.status IN ('pending', 'active')
BEGIN
    UPDATE providers SET version = 0 WHERE roster = OLD.roster AND provider = OLD.provider;
END;

-- The deadline of an offer does not end accepted work, which has a time of its own. A step says itself what becomes of the deadline; another program that
-- wants one for the work writes it in the same statement.
CREATE TRIGGER engagement_accepted AFTER UPDATE OF status ON engagements
WHEN OLD.status = 'pending' AND NEW.status = 'active' AND NEW.expires_us IS OLD.expires_us
 AND (SELECT at_us FROM steps) IS NULL
BEGIN
    UPDATE engagements SET expires_us = (SELECT at_us FROM moment) + NEW.active_for_us
    WHERE roster = NEW.roster AND engagement = NEW.engagement;
END;
