-- Claims: which tenure owns which key.

-- name: claims.put
INSERT INTO claims (grp, registry, key, tenure) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (grp, registry, key) DO UPDATE SET tenure = excluded.tenure;

-- name: claims.delete
DELETE FROM claims WHERE grp = ?1 AND registry = ?2 AND key = ?3;

-- name: claims.one
SELECT registry, key, tenure FROM claims WHERE grp = ?1 AND registry = ?2 AND key = ?3;

-- name: claims.all
SELECT registry, key, tenure FROM claims WHERE grp = ?1;
