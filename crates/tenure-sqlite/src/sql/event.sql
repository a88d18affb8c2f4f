-- What happened, in order.

-- name: insert
INSERT INTO events (grp, id, at_us, kind, tenure, reason, lease, token, from_tenure, to_member, session, connection,
                    alias, epoch, pass, counts, connections, keys, place, request)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20);

-- name: sizes
SELECT id, 64 + length(concat(kind, tenure, reason, lease, from_tenure, to_member, session, connection, alias, pass, counts,
                              keys))
FROM events
WHERE grp = ?1 AND id >= ?2
ORDER BY id
LIMIT ?3;

-- name: trim
DELETE FROM events WHERE grp = ?1 AND id < ?2;

-- name: page
SELECT id, at_us, kind, tenure, reason, lease, token, from_tenure, to_member, session, connection, alias, epoch, pass,
       counts, coalesce(connections, 0), keys, place, request
FROM events
WHERE grp = ?1 AND id >= ?2
ORDER BY id
LIMIT ?3;

-- name: page_before
SELECT id, at_us, kind, tenure, reason, lease, token, from_tenure, to_member, session, connection, alias, epoch, pass,
       counts, coalesce(connections, 0), keys, place, request
FROM events
WHERE grp = ?1 AND id >= ?2 AND id < ?4
ORDER BY id DESC
LIMIT ?3;
