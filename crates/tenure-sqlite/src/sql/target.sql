-- Targets: what there is to work on.

-- name: put
INSERT INTO targets (grp, target, paused, weight) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (grp, target) DO UPDATE SET paused = excluded.paused, weight = excluded.weight;

-- name: delete
DELETE FROM targets WHERE grp = ?1 AND target = ?2;

-- name: one
SELECT target, paused, weight FROM targets WHERE grp = ?1 AND target = ?2;

-- name: all
SELECT target, paused, weight FROM targets WHERE grp = ?1;
