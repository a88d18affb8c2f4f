-- Sessions and their connections.

-- name: put
INSERT INTO sessions (grp, session, epoch, alias, grace_us, created_us, updated_us, reap_us, granted_us, due_us, data)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (grp, session) DO UPDATE
SET epoch = excluded.epoch, alias = excluded.alias, grace_us = excluded.grace_us, created_us = excluded.created_us,
    updated_us = excluded.updated_us, reap_us = excluded.reap_us, granted_us = excluded.granted_us,
    due_us = excluded.due_us, data = excluded.data;

-- name: free_alias
UPDATE sessions SET alias = NULL WHERE grp = ?1 AND session = ?2 AND alias IS NOT NULL;

-- name: delete
DELETE FROM sessions WHERE grp = ?1 AND session = ?2;

-- name: one
SELECT session, epoch, alias, grace_us, created_us, updated_us, reap_us, granted_us, due_us, data FROM sessions
WHERE grp = ?1 AND session = ?2;

-- name: all
SELECT session, epoch, alias, grace_us, created_us, updated_us, reap_us, granted_us, due_us, data FROM sessions
WHERE grp = ?1;

-- name: put_connection
INSERT INTO connections (grp, session, connection, tenure, epoch) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (grp, session, connection) DO UPDATE SET tenure = excluded.tenure, epoch = excluded.epoch;

-- name: delete_connection
DELETE FROM connections WHERE grp = ?1 AND session = ?2 AND connection = ?3;

-- name: one_connection
SELECT session, connection, tenure, epoch FROM connections WHERE grp = ?1 AND session = ?2 AND connection = ?3;

-- name: all_connections
SELECT session, connection, tenure, epoch FROM connections WHERE grp = ?1;
