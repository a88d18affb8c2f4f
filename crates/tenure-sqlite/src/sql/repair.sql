-- What only another program can have done to rows of sessions and connections.

-- name: lost_connections
DELETE FROM connections AS c
WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.grp = c.grp AND s.session = c.session);

-- name: ghosts
DELETE FROM connections AS c
WHERE NOT EXISTS (SELECT 1 FROM ended e WHERE e.grp = c.grp AND e.tenure = c.tenure)
    AND NOT EXISTS (
        SELECT 1 FROM members m
        WHERE m.grp = c.grp AND m.member = substr(c.tenure, 1, instr(c.tenure, '@') - 1)
            AND m.member || '@' || m.term = c.tenure
    );

-- name: active
UPDATE sessions AS s
SET reap_us = NULL, granted_us = NULL, due_us = NULL
WHERE due_us IS NOT NULL
    AND EXISTS (SELECT 1 FROM connections c WHERE c.grp = s.grp AND c.session = s.session);

-- name: away
UPDATE sessions AS s
SET granted_us = coalesce(s.grace_us, ?1), reap_us = m.tick_us + coalesce(s.grace_us, ?1),
    due_us = m.tick_us + coalesce(s.grace_us, ?1)
FROM meta m
WHERE m.grp = s.grp
    AND (
        s.due_us IS NULL AND NOT EXISTS (SELECT 1 FROM connections c WHERE c.grp = s.grp AND c.session = s.session)
        OR max(s.due_us, s.reap_us) > m.tick_us + s.granted_us
        OR s.granted_us <> s.grace_us
    );

-- name: visits
UPDATE ended AS e
SET visit_us = ended_us
WHERE visit_us IS NULL
    AND EXISTS (SELECT 1 FROM connections c WHERE c.grp = e.grp AND c.tenure = e.tenure);

-- name: stray_offlined
DELETE FROM offlined AS o
WHERE NOT EXISTS (
        SELECT 1 FROM providers p
        WHERE p.grp = o.grp AND p.provider = substr(o.tenure, 1, instr(o.tenure, '@') - 1) AND p.online = o.tenure
    )
    OR EXISTS (
        SELECT 1 FROM members m
        WHERE m.grp = o.grp AND m.member = substr(o.tenure, 1, instr(o.tenure, '@') - 1)
            AND m.member || '@' || m.term = o.tenure
    );

-- name: unfollowed
INSERT INTO offlined (grp, tenure, lapsed, ended_us, at_us, reason, heard_us)
SELECT e.grp, e.tenure, e.lapsed, e.ended_us, min(e.end_us, e.ended_us), e.reason, NULL
FROM providers p JOIN ended e ON e.grp = p.grp AND e.tenure = p.online
WHERE p.followed = 0 AND NOT EXISTS (SELECT 1 FROM offlined o WHERE o.grp = e.grp AND o.tenure = e.tenure);

-- name: removed
DELETE FROM removed_providers AS r
WHERE EXISTS (SELECT 1 FROM providers p WHERE p.grp = r.grp AND p.provider = r.provider);
