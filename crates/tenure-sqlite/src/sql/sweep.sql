-- Ended tenures with holdings left, records to forget, and who lapsed lately.

-- name: holds
SELECT EXISTS (SELECT 1 FROM claims WHERE grp = ?1 AND tenure = ?2)
    OR EXISTS (SELECT 1 FROM leases WHERE grp = ?1 AND tenure = ?2)
    OR EXISTS (SELECT 1 FROM connections WHERE grp = ?1 AND tenure = ?2);

-- name: count
SELECT (SELECT count(*) FROM claims WHERE grp = ?1 AND tenure = ?2),
       (SELECT count(*) FROM leases WHERE grp = ?1 AND tenure = ?2),
       (SELECT count(*) FROM connections WHERE grp = ?1 AND tenure = ?2);

-- name: work
SELECT count(*), min(visit_us) FROM ended WHERE grp = ?1 AND lapsed = ?2 AND visit_us IS NOT NULL;

-- name: next_visit
SELECT min(visit_us) FROM ended WHERE grp = ?1 AND lapsed = ?2 AND visit_us IS NOT NULL;

-- name: releasable
SELECT tenure, visit_us, reason, end_us, ended_us FROM ended
WHERE grp = ?1 AND lapsed = ?2 AND visit_us <= ?3
ORDER BY visit_us, tenure
LIMIT ?4;

-- name: visit_again
UPDATE ended SET visit_us = ?3 WHERE grp = ?1 AND tenure = ?2 AND visit_us IS NOT NULL;

-- name: done
UPDATE ended SET visit_us = NULL WHERE grp = ?1 AND tenure = ?2 AND visit_us IS NOT NULL RETURNING lapsed;

-- name: forget
DELETE FROM ended
WHERE grp = ?1 AND tenure IN (
    SELECT tenure FROM ended
    WHERE grp = ?1 AND visit_us IS NULL AND forget_us <= ?2
    ORDER BY forget_us, tenure
    LIMIT ?3
);

-- name: doomed
SELECT tenure, reason,
       (SELECT count(*) FROM claims c WHERE c.grp = e.grp AND c.tenure = e.tenure),
       (SELECT count(*) FROM leases l WHERE l.grp = e.grp AND l.tenure = e.tenure),
       (SELECT count(*) FROM connections n WHERE n.grp = e.grp AND n.tenure = e.tenure)
FROM ended e
WHERE grp = ?1 AND lapsed = ?2 AND visit_us IS NOT NULL
ORDER BY visit_us, tenure
LIMIT ?3;

-- name: lapse
INSERT OR REPLACE INTO lapses (grp, member, at_us) VALUES (?1, ?2, ?3);

-- name: back
DELETE FROM lapses WHERE grp = ?1 AND member = ?2;

-- name: drop_lapses_before
DELETE FROM lapses WHERE grp = ?1 AND at_us < ?2;

-- name: clear_lapses
DELETE FROM lapses WHERE grp = ?1;

-- name: count_lapses
SELECT count(*) FROM lapses WHERE grp = ?1;

-- name: count_leases
SELECT count(*) FROM leases WHERE grp = ?1;

-- name: any_left
SELECT EXISTS (SELECT 1 FROM ended WHERE grp = ?1) OR EXISTS (SELECT 1 FROM members WHERE grp = ?1)
    OR EXISTS (SELECT 1 FROM claims WHERE grp = ?1) OR EXISTS (SELECT 1 FROM leases WHERE grp = ?1)
    OR EXISTS (SELECT 1 FROM reserved WHERE grp = ?1) OR EXISTS (SELECT 1 FROM targets WHERE grp = ?1)
    OR EXISTS (SELECT 1 FROM sessions WHERE grp = ?1) OR EXISTS (SELECT 1 FROM rosters WHERE grp = ?1)
    OR EXISTS (SELECT 1 FROM providers WHERE grp = ?1) OR EXISTS (SELECT 1 FROM offlined WHERE grp = ?1)
    OR EXISTS (SELECT 1 FROM turns WHERE grp = ?1);
