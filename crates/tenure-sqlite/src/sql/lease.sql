-- Leases: which tenure holds which one, under which token; and the reservations of those that were handed off.

-- name: leases.put
INSERT INTO leases (grp, lease, tenure, token) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (grp, lease) DO UPDATE SET tenure = excluded.tenure, token = excluded.token;

-- name: leases.delete
DELETE FROM leases WHERE grp = ?1 AND lease = ?2;

-- name: leases.one
SELECT lease, tenure, token FROM leases WHERE grp = ?1 AND lease = ?2;

-- name: leases.all
SELECT lease, tenure, token FROM leases WHERE grp = ?1;

-- name: reserved.put
INSERT INTO reserved (grp, lease, member, until_us) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (grp, lease) DO UPDATE SET member = excluded.member, until_us = excluded.until_us;

-- name: reserved.delete
DELETE FROM reserved WHERE grp = ?1 AND lease = ?2;

-- name: reserved.one
SELECT lease, member, until_us FROM reserved WHERE grp = ?1 AND lease = ?2;

-- name: reserved.all
SELECT lease, member, until_us FROM reserved WHERE grp = ?1;
