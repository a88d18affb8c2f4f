-- Rosters: the ledger's rows, the ended tenures that the ledger has to follow, settings and turns.

-- name: rosters.put
INSERT INTO rosters
    (grp, high, seeded, settings_version, default_capacity, stale_after_us, require_heartbeat, snapshot_us)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (grp) DO UPDATE
SET high = excluded.high, seeded = excluded.seeded, settings_version = excluded.settings_version,
    default_capacity = excluded.default_capacity, stale_after_us = excluded.stale_after_us,
    require_heartbeat = excluded.require_heartbeat, snapshot_us = excluded.snapshot_us;

-- name: rosters.delete
DELETE FROM rosters WHERE grp = ?1;

-- name: rosters.one
SELECT high, seeded, settings_version, default_capacity, stale_after_us, require_heartbeat, snapshot_us FROM rosters
WHERE grp = ?1;

-- name: rosters.all
SELECT high, seeded, settings_version, default_capacity, stale_after_us, require_heartbeat, snapshot_us FROM rosters
WHERE grp = ?1;

-- name: retiming.put
INSERT INTO retiming (grp, member) VALUES (?1, ?2) ON CONFLICT (grp) DO UPDATE SET member = excluded.member;

-- name: retiming.delete
DELETE FROM retiming WHERE grp = ?1;

-- name: retiming.one
SELECT member FROM retiming WHERE grp = ?1;

-- name: retiming.all
SELECT member FROM retiming WHERE grp = ?1;

-- name: providers.put
INSERT INTO providers
    (grp, provider, version, display_name, active, online, capacity, occupancy, last_online_us, last_offline_us,
     revoked_us, followed)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
ON CONFLICT (grp, provider) DO UPDATE
SET version = excluded.version, display_name = excluded.display_name, active = excluded.active,
    online = excluded.online, capacity = excluded.capacity, occupancy = excluded.occupancy,
    last_online_us = excluded.last_online_us, last_offline_us = excluded.last_offline_us,
    revoked_us = excluded.revoked_us, followed = excluded.followed;

-- name: providers.delete
DELETE FROM providers WHERE grp = ?1 AND provider = ?2;

-- name: providers.one
SELECT provider, display_name, active, online, capacity, occupancy, last_online_us, last_offline_us, revoked_us, version,
       followed
FROM providers
WHERE grp = ?1 AND provider = ?2;

-- name: providers.all
SELECT provider, display_name, active, online, capacity, occupancy, last_online_us, last_offline_us, revoked_us, version,
       followed
FROM providers
WHERE grp = ?1;

-- name: removed.put
INSERT INTO removed_providers (grp, provider, version, removed_us) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (grp, provider) DO UPDATE SET version = excluded.version, removed_us = excluded.removed_us;

-- name: removed.delete
DELETE FROM removed_providers WHERE grp = ?1 AND provider = ?2;

-- name: removed.one
SELECT provider, version, removed_us FROM removed_providers WHERE grp = ?1 AND provider = ?2;

-- name: removed.all
SELECT provider, version, removed_us FROM removed_providers WHERE grp = ?1;

-- name: offlined.put
INSERT INTO offlined (grp, tenure, lapsed, ended_us, at_us, reason, heard_us) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (grp, tenure) DO UPDATE
SET lapsed = excluded.lapsed, ended_us = excluded.ended_us, at_us = excluded.at_us, reason = excluded.reason,
    heard_us = excluded.heard_us;

-- name: offlined.delete
DELETE FROM offlined WHERE grp = ?1 AND tenure = ?2;

-- name: offlined.one
SELECT tenure, ended_us, at_us, reason, heard_us FROM offlined WHERE grp = ?1 AND tenure = ?2;

-- name: offlined.all
SELECT tenure, ended_us, at_us, reason, heard_us FROM offlined WHERE grp = ?1;

-- name: turns.put
INSERT INTO turns (grp, task, holder, until_us, done_us) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (grp, task) DO UPDATE
SET holder = excluded.holder, until_us = excluded.until_us, done_us = excluded.done_us;

-- name: turns.delete
DELETE FROM turns WHERE grp = ?1 AND task = ?2;

-- name: turns.one
SELECT task, holder, until_us, done_us FROM turns WHERE grp = ?1 AND task = ?2;

-- name: turns.all
SELECT task, holder, until_us, done_us FROM turns WHERE grp = ?1;
