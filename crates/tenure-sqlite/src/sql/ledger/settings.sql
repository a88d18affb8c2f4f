-- The settings of rosters.

-- name: rosters
SELECT roster FROM rosters ORDER BY roster;

-- name: get
SELECT default_capacity, stale_after_ms, require_heartbeat, snapshot_ms, version FROM rosters WHERE roster = ?1;

-- name: put
INSERT INTO rosters (roster, default_capacity, stale_after_ms, require_heartbeat, snapshot_ms)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (roster) DO UPDATE SET
    default_capacity = excluded.default_capacity, stale_after_ms = excluded.stale_after_ms,
    require_heartbeat = excluded.require_heartbeat, snapshot_ms = excluded.snapshot_ms;
