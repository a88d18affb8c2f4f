-- Members and why their tenures ended.

-- name: upsert
INSERT INTO members (grp, member, term, ttl_us, deadline_us, labels) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (grp, member) DO UPDATE
SET term = excluded.term, ttl_us = excluded.ttl_us, deadline_us = excluded.deadline_us, labels = excluded.labels,
    revision = 0;

-- name: change_ttl
UPDATE members SET ttl_us = ?4, deadline_us = ?5 WHERE grp = ?1 AND member = ?2 AND term = ?3;

-- name: revise
UPDATE members SET revision = ?4 WHERE grp = ?1 AND member = ?2 AND term = ?3;

-- name: revision
SELECT revision FROM members WHERE grp = ?1 AND member = ?2 AND term = ?3;

-- name: delete
DELETE FROM members WHERE grp = ?1 AND member = ?2 AND term = ?3;

-- name: record_end
INSERT INTO ended (grp, tenure, reason, lapsed, end_us, ended_us, forget_us, visit_us)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8);

-- name: record
SELECT reason, end_us, ended_us FROM ended WHERE grp = ?1 AND tenure = ?2;

-- name: all
SELECT member, term, ttl_us, deadline_us, revision FROM members WHERE grp = ?1;

-- name: one
SELECT member, term, ttl_us, deadline_us, labels,
       (SELECT count(*) FROM claims c WHERE c.grp = m.grp AND c.tenure = m.member || '@' || m.term),
       (SELECT count(*) FROM leases l WHERE l.grp = m.grp AND l.tenure = m.member || '@' || m.term),
       (SELECT count(*) FROM connections n WHERE n.grp = m.grp AND n.tenure = m.member || '@' || m.term)
FROM members m
WHERE grp = ?1 AND member = ?2;

-- name: page
SELECT member, term, ttl_us, deadline_us, labels,
       (SELECT count(*) FROM claims c WHERE c.grp = m.grp AND c.tenure = m.member || '@' || m.term),
       (SELECT count(*) FROM leases l WHERE l.grp = m.grp AND l.tenure = m.member || '@' || m.term),
       (SELECT count(*) FROM connections n WHERE n.grp = m.grp AND n.tenure = m.member || '@' || m.term)
FROM members m
WHERE grp = ?1 AND member > ?2
ORDER BY member
LIMIT ?3;
