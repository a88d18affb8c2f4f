-- Looking for what no step of this store leaves behind: rows of sessions and connections that do not fit together.

-- name: sessions
SELECT session, epoch, alias, grace_us, created_us, updated_us, reap_us, granted_us, due_us, data,
       EXISTS (SELECT 1 FROM connections c WHERE c.grp = s.grp AND c.session = s.session)
FROM sessions s
WHERE grp = ?1 AND session > ?2
ORDER BY session
LIMIT ?3;

-- name: connections
SELECT session, connection, tenure, epoch,
       EXISTS (SELECT 1 FROM sessions s WHERE s.grp = c.grp AND s.session = c.session),
       EXISTS (SELECT 1 FROM ended e WHERE e.grp = c.grp AND e.tenure = c.tenure AND e.visit_us IS NOT NULL)
FROM connections c
WHERE grp = ?1 AND (session, connection) > (?2, ?3)
ORDER BY session, connection
LIMIT ?4;

-- name: mend
UPDATE sessions
SET epoch = ?3, alias = ?4, grace_us = ?5, created_us = ?6, updated_us = ?7, data = ?8,
    reap_us = NULL, granted_us = NULL, due_us = NULL
WHERE grp = ?1 AND session = ?2;

-- name: mend_connection
UPDATE connections SET epoch = ?4 WHERE grp = ?1 AND session = ?2 AND connection = ?3;
