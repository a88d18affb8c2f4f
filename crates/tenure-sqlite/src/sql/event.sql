-- What happened, in order.

-- name: insert
INSERT INTO events (grp, id, at_us, kind, tenure, reason, pass, counts, keys)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9);

-- name: trim
DELETE FROM events WHERE grp = ?1 AND id < ?2;

-- name: page
SELECT id, at_us, kind, tenure, reason, pass, counts, keys FROM events
WHERE grp = ?1 AND id >= ?2
ORDER BY id
LIMIT ?3;
