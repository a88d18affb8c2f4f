-- Targets: what there is to work on.

-- name: one
SELECT target, paused, weight FROM targets WHERE grp = ?1 AND target = ?2;

-- name: upsert
INSERT INTO targets (grp, target, paused, weight) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (grp, target) DO UPDATE SET paused = excluded.paused, weight = excluded.weight;

-- name: delete
DELETE FROM targets WHERE grp = ?1 AND target = ?2;

-- name: page
SELECT target, paused, weight FROM targets WHERE grp = ?1 AND target > ?2 ORDER BY target LIMIT ?3;
