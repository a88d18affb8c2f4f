-- The outbox.

-- name: oldest
SELECT provider, version, since_us FROM outbox WHERE roster = ?1 ORDER BY version LIMIT ?2;

-- name: counts
SELECT roster, count(*) FROM outbox GROUP BY roster;

-- name: version
SELECT version FROM outbox WHERE roster = ?1 AND provider = ?2;

-- name: clean
DELETE FROM outbox WHERE roster = ?1 AND provider = ?2 AND version <= ?3;
