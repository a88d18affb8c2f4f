-- Targets: what there is to work on.

-- name: targets.put
INSERT INTO targets (grp, target, paused, weight) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (grp, target) DO UPDATE SET paused = excluded.paused, weight = excluded.weight;

-- name: targets.delete
DELETE FROM targets WHERE grp = ?1 AND target = ?2;

-- name: targets.one
SELECT target, paused, weight FROM targets WHERE grp = ?1 AND target = ?2;

-- name: targets.all
SELECT target, paused, weight FROM targets WHERE grp = ?1;
