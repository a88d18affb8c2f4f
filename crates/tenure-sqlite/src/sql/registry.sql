-- Claims: which tenure owns which key.

-- name: owner
SELECT tenure FROM claims WHERE grp = ?1 AND registry = ?2 AND key = ?3;

-- name: upsert
INSERT INTO claims (grp, registry, key, tenure) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (grp, registry, key) DO UPDATE SET tenure = excluded.tenure;

-- name: delete
DELETE FROM claims WHERE grp = ?1 AND registry = ?2 AND key = ?3 AND tenure = ?4;

-- name: held
SELECT registry, key FROM claims WHERE grp = ?1 AND tenure = ?2 ORDER BY registry, key LIMIT ?3;

-- name: page
SELECT key, tenure FROM claims WHERE grp = ?1 AND registry = ?2 AND key > ?3 ORDER BY key LIMIT ?4;

-- name: next_tenure
SELECT tenure FROM claims WHERE grp = ?1 AND tenure > ?2 AND tenure < ?3 ORDER BY tenure LIMIT 1;

-- name: owned_page
SELECT key FROM claims WHERE grp = ?1 AND tenure = ?2 AND registry = ?3 AND key > ?4 ORDER BY key LIMIT ?5;
