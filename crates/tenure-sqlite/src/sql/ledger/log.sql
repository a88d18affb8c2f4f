-- The log of changes.

-- name: all
SELECT id, provider, change, reason, logged_us, version FROM provider_log
WHERE roster = ?1 AND id > ?2 ORDER BY id LIMIT ?3;

-- name: of_provider
SELECT id, provider, change, reason, logged_us, version FROM provider_log
WHERE roster = ?1 AND provider = ?4 AND id > ?2 ORDER BY id LIMIT ?3;
