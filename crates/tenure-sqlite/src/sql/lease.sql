-- Leases: which tenure holds which place, under which token; and the reservations of places that were handed off.

-- name: leases.put
INSERT INTO leases (grp, lease, place, tenure, token, holders, generation, request, revoked, revoked_until_us)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (grp, lease, place) DO UPDATE SET tenure = excluded.tenure, token = excluded.token,
    holders = excluded.holders, generation = excluded.generation, request = excluded.request, revoked = excluded.revoked,
    revoked_until_us = excluded.revoked_until_us;

-- name: leases.delete
DELETE FROM leases WHERE grp = ?1 AND lease = ?2 AND place = ?3;

-- name: leases.one
SELECT lease, place, tenure, token, holders, generation, request, revoked, revoked_until_us
FROM leases WHERE grp = ?1 AND lease = ?2 AND place = ?3;

-- name: leases.all
SELECT lease, place, tenure, token, holders, generation, request, revoked, revoked_until_us FROM leases WHERE grp = ?1;

-- name: reserved.put
INSERT INTO reserved (grp, lease, place, member, until_us, holders, generation) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (grp, lease, place) DO UPDATE SET member = excluded.member, until_us = excluded.until_us,
    holders = excluded.holders, generation = excluded.generation;

-- name: reserved.delete
DELETE FROM reserved WHERE grp = ?1 AND lease = ?2 AND place = ?3;

-- name: reserved.one
SELECT lease, place, member, until_us, holders, generation FROM reserved WHERE grp = ?1 AND lease = ?2 AND place = ?3;

-- name: reserved.all
SELECT lease, place, member, until_us, holders, generation FROM reserved WHERE grp = ?1;
