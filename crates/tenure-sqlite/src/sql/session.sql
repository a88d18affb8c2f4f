-- Sessions and their connections.

-- name: sessions.put
INSERT INTO sessions (grp, session, epoch, alias, grace_us, created_us, updated_us, reap_us, granted_us, due_us, data)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (grp, session) DO UPDATE
SET epoch = excluded.epoch, alias = excluded.alias, grace_us = excluded.grace_us, created_us = excluded.created_us,
    updated_us = excluded.updated_us, reap_us = excluded.reap_us, granted_us = excluded.granted_us,
    due_us = excluded.due_us, data = excluded.data;

-- name: free_alias
UPDATE sessions SET alias = NULL WHERE grp = ?1 AND session = ?2 AND alias IS NOT NULL;

-- name: sessions.delete
DELETE FROM sessions WHERE grp = ?1 AND session = ?2;

-- name: sessions.one
SELECT session, epoch, alias, grace_us, created_us, updated_us, reap_us, granted_us, due_us, data FROM sessions
WHERE grp = ?1 AND session = ?2;

-- name: sessions.all
SELECT session, epoch, alias, grace_us, created_us, updated_us, reap_us, granted_us, due_us, data FROM sessions
WHERE grp = ?1;

-- name: connections.put
INSERT INTO connections (grp, session, connection, tenure, epoch) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (grp, session, connection) DO UPDATE SET tenure = excluded.tenure, epoch = excluded.epoch;

-- name: connections.delete
DELETE FROM connections WHERE grp = ?1 AND session = ?2 AND connection = ?3;

-- name: connections.one
SELECT session, connection, tenure, epoch FROM connections WHERE grp = ?1 AND session = ?2 AND connection = ?3;

-- name: connections.all
SELECT session, connection, tenure, epoch FROM connections WHERE grp = ?1;
