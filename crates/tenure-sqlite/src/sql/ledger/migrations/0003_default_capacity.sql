-- A provider without a capacity of its own has the roster's default, also after that has changed. The number in its row is
-- derived from the default, as its occupancy is from its engagements. A row from before this migration keeps its number as
-- its own: nothing tells whether it was a default. An empty `capacity` in a statement gives the provider the default.
ALTER TABLE providers ADD COLUMN uses_default INTEGER NOT NULL DEFAULT 0 CHECK (uses_default IN (0, 1));

-- The triggers as before, but for the capacity.
DROP TRIGGER settings_changed;
DROP TRIGGER provider_written;
DROP TRIGGER provider_changed;

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
            SELECT count(*) FROM engagements
            WHERE roster = NEW.roster AND provider = NEW.provider AND status IN ('pending', 'active')),
        last_online_us = CASE WHEN NEW.online THEN (SELECT at_us FROM moment) ELSE NEW.last_online_us END,
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
            SELECT count(*) FROM engagements
            WHERE roster = NEW.roster AND provider = NEW.provider AND status IN ('pending', 'active')),
        last_online_us = CASE WHEN NEW.online AND NEW.active AND NOT OLD.online THEN
            (SELECT at_us FROM moment) ELSE NEW.last_online_us END,
        last_offline_us = CASE WHEN OLD.online AND NOT (NEW.online AND NEW.active) AND NOT (SELECT follows FROM moment) THEN
            (SELECT at_us FROM moment) ELSE NEW.last_offline_us END,
        revoked_before_us = CASE WHEN OLD.active AND NOT NEW.active THEN
            max(coalesce(OLD.revoked_before_us, 0), (SELECT at_us FROM moment)) ELSE NEW.revoked_before_us END,
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
