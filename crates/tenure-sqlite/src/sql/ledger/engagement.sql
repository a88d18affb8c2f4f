-- Engagements, and who has room for one.

-- name: get
SELECT engagement, provider, status, created_us, changed_us, expires_us, version, active_for_us
FROM engagements WHERE roster = ?1 AND engagement = ?2;

-- name: insert
INSERT INTO engagements (roster, engagement, provider, status, expires_us, active_for_us) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: update
UPDATE engagements SET provider = ?3, status = ?4, expires_us = ?5 WHERE roster = ?1 AND engagement = ?2;

-- name: due
SELECT engagement FROM engagements
WHERE roster = ?1 AND status IN ('pending', 'active') AND expires_us <= ?2
ORDER BY expires_us, engagement LIMIT ?3;

-- name: next_due
SELECT expires_us FROM engagements
WHERE roster = ?1 AND status IN ('pending', 'active') AND expires_us IS NOT NULL
ORDER BY expires_us LIMIT 1;

-- name: next_free
SELECT p.provider FROM providers p
WHERE p.roster = ?1 AND p.online AND p.active AND p.occupancy < p.capacity
  AND (?2 IS NULL OR p.last_online_us >= ?2 OR EXISTS (
    SELECT 1 FROM heartbeats h WHERE h.roster = ?1 AND h.provider = p.provider AND h.heard_us >= ?2))
ORDER BY p.occupancy, p.idle_us, p.provider;

-- name: free_one
SELECT p.provider FROM providers p
WHERE p.roster = ?1 AND p.provider = ?3 AND p.online AND p.active AND p.occupancy < p.capacity
  AND (?2 IS NULL OR p.last_online_us >= ?2 OR EXISTS (
    SELECT 1 FROM heartbeats h WHERE h.roster = ?1 AND h.provider = p.provider AND h.heard_us >= ?2));

-- name: remove_closed
DELETE FROM engagements WHERE roster = ?1 AND engagement IN (
    SELECT engagement FROM engagements
    WHERE roster = ?1 AND status NOT IN ('pending', 'active') AND changed_us < ?2
    ORDER BY changed_us LIMIT ?3);

-- name: is_full
SELECT p.capacity <= (
    SELECT count(*) FROM engagements e INDEXED BY engagements_open
    WHERE e.roster = ?1 AND e.provider = ?2 AND e.status IN ('pending', 'active'))
FROM providers p WHERE p.roster = ?1 AND p.provider = ?2;

-- Any version but its own makes the row a changed one, and its trigger counts.
-- name: recount
UPDATE providers SET version = 0 WHERE roster = ?1 AND provider = ?2;

-- name: miscounted
SELECT p.provider FROM providers p
WHERE p.roster = ?1 AND p.occupancy <> (
    SELECT count(*) FROM engagements e INDEXED BY engagements_open
    WHERE e.roster = ?1 AND e.provider = p.provider AND e.status IN ('pending', 'active'))
ORDER BY p.provider;

-- name: free
SELECT provider, occupancy, capacity FROM providers
WHERE roster = ?1 AND (occupancy, provider) > (?3, ?4) AND online AND active AND occupancy < capacity
ORDER BY occupancy, provider LIMIT ?2;

-- name: free_and_fresh
SELECT p.provider, p.occupancy, p.capacity FROM providers p
WHERE p.roster = ?1 AND (p.occupancy, p.provider) > (?3, ?4) AND p.online AND p.active AND p.occupancy < p.capacity
  AND (p.last_online_us >= ?5 OR EXISTS (
    SELECT 1 FROM heartbeats h WHERE h.roster = ?1 AND h.provider = p.provider AND h.heard_us >= ?5))
ORDER BY p.occupancy, p.provider LIMIT ?2;
