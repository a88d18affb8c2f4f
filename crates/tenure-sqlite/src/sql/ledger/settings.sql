-- The settings of rosters.

-- name: rosters
SELECT roster FROM rosters ORDER BY roster;

-- name: overview
SELECT r.roster, r.default_capacity, r.stale_after_ms, r.require_heartbeat, r.snapshot_ms, r.version,
    EXISTS (SELECT 1 FROM outbox o WHERE o.roster = r.roster),
    (SELECT e.expires_us FROM engagements e
     WHERE e.roster = r.roster AND e.status IN ('pending', 'active') AND e.expires_us IS NOT NULL
     ORDER BY e.expires_us LIMIT 1)
FROM rosters r ORDER BY r.roster;

-- name: get
SELECT default_capacity, stale_after_ms, require_heartbeat, snapshot_ms, version FROM rosters WHERE roster = ?1;

-- name: put
INSERT INTO rosters (roster, default_capacity, stale_after_ms, require_heartbeat, snapshot_ms)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (roster) DO UPDATE SET
    default_capacity = excluded.default_capacity, stale_after_ms = excluded.stale_after_ms,
    require_heartbeat = excluded.require_heartbeat, snapshot_ms = excluded.snapshot_ms;
