-- Leases: which tenure holds which one, under which token; and the reservations of those that were handed off.

-- name: put
INSERT INTO leases (grp, lease, tenure, token) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (grp, lease) DO UPDATE SET tenure = excluded.tenure, token = excluded.token;

-- name: delete
DELETE FROM leases WHERE grp = ?1 AND lease = ?2;

-- name: one
SELECT lease, tenure, token FROM leases WHERE grp = ?1 AND lease = ?2;

-- name: all
SELECT lease, tenure, token FROM leases WHERE grp = ?1;

-- name: put_reserved
INSERT INTO reserved (grp, lease, member, until_us) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (grp, lease) DO UPDATE SET member = excluded.member, until_us = excluded.until_us;

-- name: delete_reserved
DELETE FROM reserved WHERE grp = ?1 AND lease = ?2;

-- name: one_reserved
SELECT lease, member, until_us FROM reserved WHERE grp = ?1 AND lease = ?2;

-- name: all_reserved
SELECT lease, member, until_us FROM reserved WHERE grp = ?1;
