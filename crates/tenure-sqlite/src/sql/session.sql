-- Sessions, their connections, and those that have none: when they are to be looked at.

-- name: one
SELECT session, epoch, alias, grace_us, created_us, updated_us, reap_us, granted_us, due_us, data FROM sessions
WHERE grp = ?1 AND session = ?2;

-- name: by_alias
SELECT session, epoch, alias, grace_us, created_us, updated_us, reap_us, granted_us, due_us, data FROM sessions
WHERE grp = ?1 AND alias = ?2;

-- name: page
SELECT session, epoch, alias, grace_us, created_us, updated_us, reap_us, granted_us, due_us, data FROM sessions
WHERE grp = ?1 AND session > ?2
ORDER BY session
LIMIT ?3;

-- name: active_page
SELECT session, epoch, alias, grace_us, created_us, updated_us, reap_us, granted_us, due_us, data
FROM sessions INDEXED BY sessions_active
WHERE grp = ?1 AND due_us IS NULL AND session > ?2
ORDER BY session
LIMIT ?3;

-- name: away_page
SELECT session, epoch, alias, grace_us, created_us, updated_us, reap_us, granted_us, due_us, data
FROM sessions INDEXED BY sessions_away
WHERE grp = ?1 AND due_us IS NOT NULL AND (due_us, session) > (?2, ?3)
ORDER BY due_us, session
LIMIT ?4;

-- name: upsert
INSERT INTO sessions (grp, session, epoch, alias, grace_us, created_us, updated_us, data)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (grp, session) DO UPDATE
SET epoch = excluded.epoch, alias = excluded.alias, grace_us = excluded.grace_us, updated_us = excluded.updated_us,
    data = excluded.data, reap_us = NULL, granted_us = NULL, due_us = NULL;

-- name: patch
UPDATE sessions SET data = ?3, updated_us = ?4 WHERE grp = ?1 AND session = ?2;

-- name: disconnect
UPDATE sessions
SET granted_us = coalesce(grace_us, ?3), reap_us = ?4 + coalesce(grace_us, ?3), due_us = ?4 + coalesce(grace_us, ?3)
WHERE grp = ?1 AND session = ?2 AND due_us IS NULL
RETURNING granted_us, epoch, alias;

-- name: delete
DELETE FROM sessions WHERE grp = ?1 AND session = ?2 RETURNING due_us IS NOT NULL;

-- name: due
SELECT session, epoch, alias, reap_us, granted_us,
       EXISTS (SELECT 1 FROM connections c WHERE c.grp = s.grp AND c.session = s.session)
FROM sessions s INDEXED BY sessions_away
WHERE grp = ?1 AND due_us <= ?2
ORDER BY due_us, session
LIMIT ?3;

-- name: put_off
UPDATE sessions SET due_us = ?3 WHERE grp = ?1 AND session = ?2;

-- name: unlist
UPDATE sessions SET reap_us = NULL, granted_us = NULL, due_us = NULL
WHERE grp = ?1 AND session = ?2 AND due_us IS NOT NULL;

-- name: next_due
SELECT due_us FROM sessions INDEXED BY sessions_away
WHERE grp = ?1 AND due_us IS NOT NULL
ORDER BY due_us
LIMIT 1;

-- name: count
SELECT count(*) FROM sessions WHERE grp = ?1;

-- name: count_away
SELECT count(*) FROM sessions INDEXED BY sessions_away WHERE grp = ?1 AND due_us IS NOT NULL;

-- name: count_due
SELECT count(*) FROM sessions INDEXED BY sessions_away WHERE grp = ?1 AND due_us <= ?2;

-- name: connections
SELECT connection, tenure FROM connections WHERE grp = ?1 AND session = ?2 ORDER BY connection;

-- name: count_connections
SELECT count(*) FROM connections WHERE grp = ?1 AND session = ?2;

-- name: connected
SELECT EXISTS (SELECT 1 FROM connections WHERE grp = ?1 AND session = ?2);

-- name: holder
SELECT tenure, epoch FROM connections WHERE grp = ?1 AND session = ?2 AND connection = ?3;

-- name: connect
INSERT INTO connections (grp, session, connection, tenure, epoch) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (grp, session, connection) DO UPDATE SET tenure = excluded.tenure, epoch = excluded.epoch;

-- name: drop_connection
DELETE FROM connections WHERE grp = ?1 AND session = ?2 AND connection = ?3 AND tenure = ?4;

-- name: held
SELECT session, connection FROM connections
WHERE grp = ?1 AND tenure = ?2
ORDER BY session, connection
LIMIT ?3;
