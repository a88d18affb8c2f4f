-- Leases: which tenure holds which one, under which token; and whom those wait for that were handed off.

-- name: holder
SELECT tenure, token FROM leases WHERE grp = ?1 AND lease = ?2;

-- name: upsert
INSERT INTO leases (grp, lease, tenure, token) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (grp, lease) DO UPDATE SET tenure = excluded.tenure, token = excluded.token;

-- name: delete
DELETE FROM leases WHERE grp = ?1 AND lease = ?2 AND tenure = ?3 AND token = ?4;

-- name: held
SELECT lease, token FROM leases WHERE grp = ?1 AND tenure = ?2 ORDER BY lease LIMIT ?3;

-- name: one
SELECT l.lease, l.tenure, l.token, e.reason, e.end_us, e.ended_us
FROM leases l
LEFT JOIN ended e ON e.grp = l.grp AND e.tenure = l.tenure
WHERE l.grp = ?1 AND l.lease = ?2;

-- name: page
SELECT l.lease, l.tenure, l.token, e.reason, e.end_us, e.ended_us
FROM leases l
LEFT JOIN ended e ON e.grp = l.grp AND e.tenure = l.tenure
WHERE l.grp = ?1 AND l.lease > ?2
ORDER BY l.lease
LIMIT ?3;

-- name: next_tenure
SELECT tenure FROM leases WHERE grp = ?1 AND tenure > ?2 AND tenure < ?3 ORDER BY tenure LIMIT 1;

-- name: held_page
SELECT l.lease, l.tenure, l.token, e.reason, e.end_us, e.ended_us
FROM leases l
LEFT JOIN ended e ON e.grp = l.grp AND e.tenure = l.tenure
WHERE l.grp = ?1 AND l.tenure = ?2 AND l.lease > ?3
ORDER BY l.lease
LIMIT ?4;

-- name: reserve
INSERT INTO reserved (grp, lease, member, until_us) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (grp, lease) DO UPDATE SET member = excluded.member, until_us = excluded.until_us;

-- name: reserved
SELECT member, until_us FROM reserved WHERE grp = ?1 AND lease = ?2;

-- name: unreserve
DELETE FROM reserved WHERE grp = ?1 AND lease = ?2;

-- name: forget_reserved
DELETE FROM reserved
WHERE grp = ?1 AND lease IN (
    SELECT lease FROM reserved
    WHERE grp = ?1 AND until_us <= ?2
    ORDER BY until_us, lease
    LIMIT ?3
);
