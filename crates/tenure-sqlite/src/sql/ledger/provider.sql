-- Providers. Versions, the log, the outbox and the occupancy are the triggers' work.

-- name: get
SELECT provider, display_name, active, online_tenure, capacity, occupancy, last_online_us, last_offline_us, heard_us,
       revoked_before_us, version
FROM provider_rows WHERE roster = ?1 AND provider = ?2;

-- name: all
SELECT provider, display_name, active, online_tenure, capacity, occupancy, last_online_us, last_offline_us, heard_us,
       revoked_before_us, version
FROM provider_rows WHERE roster = ?1 AND provider > ?2 ORDER BY provider LIMIT ?3;

-- name: online
SELECT provider, display_name, active, online_tenure, capacity, occupancy, last_online_us, last_offline_us, heard_us,
       revoked_before_us, version
FROM provider_rows WHERE roster = ?1 AND provider > ?2 AND online ORDER BY provider LIMIT ?3;

-- name: with_room
SELECT provider, display_name, active, online_tenure, capacity, occupancy, last_online_us, last_offline_us, heard_us,
       revoked_before_us, version
FROM provider_rows WHERE roster = ?1 AND provider > ?2 AND online AND active AND +occupancy < capacity
ORDER BY provider LIMIT ?3;

-- name: busy
SELECT provider, display_name, active, online_tenure, capacity, occupancy, last_online_us, last_offline_us, heard_us,
       revoked_before_us, version
FROM provider_rows WHERE roster = ?1 AND provider > ?2 AND online AND occupancy >= capacity ORDER BY provider LIMIT ?3;

-- name: offline
SELECT provider, display_name, active, online_tenure, capacity, occupancy, last_online_us, last_offline_us, heard_us,
       revoked_before_us, version
FROM provider_rows WHERE roster = ?1 AND provider > ?2 AND active AND NOT online ORDER BY provider LIMIT ?3;

-- name: deactivated
SELECT provider, display_name, active, online_tenure, capacity, occupancy, last_online_us, last_offline_us, heard_us,
       revoked_before_us, version
FROM provider_rows WHERE roster = ?1 AND provider > ?2 AND NOT active ORDER BY provider LIMIT ?3;

-- name: insert
INSERT INTO providers (roster, provider, display_name, capacity) VALUES (?1, ?2, ?3, ?4);

-- An empty capacity would be a change; the number of the default is none.
-- name: update
UPDATE providers SET
    display_name = coalesce(?3, display_name),
    capacity = CASE
        WHEN NOT ?5 THEN coalesce(?4, capacity)
        WHEN capacity = (SELECT default_capacity FROM rosters WHERE roster = ?1) THEN capacity END,
    uses_default = ?5 OR uses_default AND ?4 IS NULL
WHERE roster = ?1 AND provider = ?2;

-- name: uses_default
SELECT uses_default FROM providers WHERE roster = ?1 AND provider = ?2;

-- name: remove
DELETE FROM providers WHERE roster = ?1 AND provider = ?2;

-- name: set_active
UPDATE providers SET active = ?3 WHERE roster = ?1 AND provider = ?2;

-- name: take_online
UPDATE providers SET online = 1, online_tenure = ?3 WHERE roster = ?1 AND provider = ?2;

-- name: take_offline
UPDATE providers SET online = 0 WHERE roster = ?1 AND provider = ?2;

-- name: stats
SELECT count(*) FILTER (WHERE p.online),
       count(*) FILTER (WHERE p.online AND p.active AND p.occupancy < p.capacity
                          AND (?2 IS NULL OR p.last_online_us >= ?2 OR p.heard_us >= ?2)),
       count(*) FILTER (WHERE p.online AND p.occupancy >= p.capacity),
       count(*) FILTER (WHERE p.active AND NOT p.online),
       count(*) FILTER (WHERE NOT p.active),
       (SELECT count(*) FROM outbox o WHERE o.roster = ?1)
FROM provider_rows p WHERE p.roster = ?1;
