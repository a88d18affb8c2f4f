-- Rosters: the ledger's rows, whom the ledger has to follow, settings and turns.

-- name: marks
SELECT high, seeded, settings_version, default_capacity, stale_after_us, require_heartbeat, snapshot_us FROM rosters
WHERE grp = ?1;

-- name: save_marks
INSERT INTO rosters
    (grp, high, seeded, settings_version, default_capacity, stale_after_us, require_heartbeat, snapshot_us)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (grp) DO UPDATE
SET high = excluded.high, seeded = excluded.seeded, settings_version = excluded.settings_version,
    default_capacity = excluded.default_capacity, stale_after_us = excluded.stale_after_us,
    require_heartbeat = excluded.require_heartbeat, snapshot_us = excluded.snapshot_us;

-- name: retime_all
INSERT INTO retiming (grp, member) VALUES (?1, '') ON CONFLICT (grp) DO UPDATE SET member = '';

-- name: retiming
SELECT member FROM retiming WHERE grp = ?1;

-- name: retimed_to
UPDATE retiming SET member = ?2 WHERE grp = ?1;

-- name: retimed
DELETE FROM retiming WHERE grp = ?1;

-- name: to_retime
SELECT member FROM members WHERE grp = ?1 AND member > ?2 ORDER BY member LIMIT ?3;

-- name: all
SELECT provider, display_name, active, online, capacity, occupancy, last_online_us, last_offline_us, revoked_us, version
FROM providers
WHERE grp = ?1;

-- name: upsert
INSERT INTO providers
    (grp, provider, version, display_name, active, online, capacity, occupancy, last_online_us, last_offline_us,
     revoked_us)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (grp, provider) DO UPDATE
SET version = excluded.version, display_name = excluded.display_name, active = excluded.active,
    online = excluded.online, capacity = excluded.capacity, occupancy = excluded.occupancy,
    last_online_us = excluded.last_online_us, last_offline_us = excluded.last_offline_us,
    revoked_us = excluded.revoked_us, followed = 0;

-- name: delete
DELETE FROM providers WHERE grp = ?1 AND provider = ?2;

-- name: one
SELECT provider, display_name, active, online, capacity, occupancy, last_online_us, last_offline_us, revoked_us, version,
       EXISTS (SELECT 1 FROM ended e WHERE e.grp = p.grp AND e.tenure = p.online)
           OR EXISTS (SELECT 1 FROM offlined o WHERE o.grp = p.grp AND o.tenure = p.online)
FROM providers p
WHERE grp = ?1 AND provider = ?2;

-- name: page
SELECT provider, display_name, active, online, capacity, occupancy, last_online_us, last_offline_us, revoked_us, version,
       EXISTS (SELECT 1 FROM ended e WHERE e.grp = p.grp AND e.tenure = p.online)
           OR EXISTS (SELECT 1 FROM offlined o WHERE o.grp = p.grp AND o.tenure = p.online)
FROM providers p
WHERE grp = ?1 AND provider > ?2
ORDER BY provider
LIMIT ?3;

-- name: verified
SELECT provider, display_name, active, online, capacity, occupancy, last_online_us, last_offline_us, revoked_us, version,
       followed OR EXISTS (SELECT 1 FROM offlined o WHERE o.grp = p.grp AND o.tenure = p.online)
FROM providers p
WHERE grp = ?1 AND provider > ?2
ORDER BY provider
LIMIT ?3;

-- name: removed_version
SELECT version FROM removed_providers WHERE grp = ?1 AND provider = ?2;

-- name: remember
INSERT INTO removed_providers (grp, provider, version, removed_us) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (grp, provider) DO UPDATE SET version = excluded.version, removed_us = excluded.removed_us;

-- name: bring_back
DELETE FROM removed_providers WHERE grp = ?1 AND provider = ?2;

-- name: removed_page
SELECT provider, version, EXISTS (SELECT 1 FROM providers p WHERE p.grp = r.grp AND p.provider = r.provider)
FROM removed_providers r
WHERE grp = ?1 AND provider > ?2
ORDER BY provider
LIMIT ?3;

-- name: forget
DELETE FROM removed_providers
WHERE grp = ?1 AND provider IN (
    SELECT provider FROM removed_providers WHERE grp = ?1 AND removed_us <= ?2 ORDER BY removed_us LIMIT ?3
);

-- name: note_offline
INSERT INTO offlined (grp, tenure, lapsed, ended_us, at_us, reason, heard_us) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (grp, tenure) DO NOTHING;

-- name: is_offlined
SELECT EXISTS (SELECT 1 FROM offlined WHERE grp = ?1 AND tenure = ?2);

-- name: offlined
SELECT tenure, ended_us, at_us, reason, heard_us FROM offlined
WHERE grp = ?1 AND lapsed = ?2
ORDER BY ended_us, tenure
LIMIT ?3;

-- name: offlined_page
SELECT tenure, ended_us, at_us, reason, heard_us FROM offlined WHERE grp = ?1 AND tenure > ?2 ORDER BY tenure LIMIT ?3;

-- name: offline_done
DELETE FROM offlined WHERE grp = ?1 AND tenure = ?2 RETURNING lapsed;

-- name: followed
UPDATE providers SET followed = ?4 WHERE grp = ?1 AND provider = ?2 AND online = ?3;

-- name: count_offlined
SELECT count(*), min(ended_us) FROM offlined WHERE grp = ?1 AND lapsed = ?2;

-- name: next_offlined
SELECT min(ended_us) FROM offlined WHERE grp = ?1 AND lapsed = ?2;

-- name: turn
SELECT holder, until_us, done_us FROM turns WHERE grp = ?1 AND task = ?2;

-- name: save_turn
INSERT INTO turns (grp, task, holder, until_us, done_us) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (grp, task) DO UPDATE
SET holder = excluded.holder, until_us = excluded.until_us, done_us = excluded.done_us;

-- name: has_row
SELECT 1 FROM providers WHERE grp = ?1 AND provider = ?2;
