-- Members, why their tenures ended, and who lapsed lately.

-- name: members.put
INSERT INTO members (grp, member, term, ttl_us, deadline_us, labels, revision) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (grp, member) DO UPDATE
SET term = excluded.term, ttl_us = excluded.ttl_us, deadline_us = excluded.deadline_us, labels = excluded.labels,
    revision = excluded.revision;

-- name: members.delete
DELETE FROM members WHERE grp = ?1 AND member = ?2;

-- name: members.one
SELECT member, term, ttl_us, deadline_us, labels, revision FROM members WHERE grp = ?1 AND member = ?2;

-- name: members.all
SELECT member, term, ttl_us, deadline_us, labels, revision FROM members WHERE grp = ?1;

-- name: ended.put
INSERT INTO ended (grp, tenure, reason, lapsed, end_us, ended_us, forget_us, visit_us)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (grp, tenure) DO UPDATE
SET reason = excluded.reason, lapsed = excluded.lapsed, end_us = excluded.end_us, ended_us = excluded.ended_us,
    forget_us = excluded.forget_us, visit_us = excluded.visit_us;

-- name: ended.delete
DELETE FROM ended WHERE grp = ?1 AND tenure = ?2;

-- name: ended.one
SELECT tenure, reason, end_us, ended_us, forget_us, visit_us FROM ended WHERE grp = ?1 AND tenure = ?2;

-- name: ended.all
SELECT tenure, reason, end_us, ended_us, forget_us, visit_us FROM ended WHERE grp = ?1;

-- name: lapses.put
INSERT INTO lapses (grp, member, at_us) VALUES (?1, ?2, ?3)
ON CONFLICT (grp, member) DO UPDATE SET at_us = excluded.at_us;

-- name: lapses.delete
DELETE FROM lapses WHERE grp = ?1 AND member = ?2;

-- name: lapses.one
SELECT member, at_us FROM lapses WHERE grp = ?1 AND member = ?2;

-- name: lapses.all
SELECT member, at_us FROM lapses WHERE grp = ?1;
