-- Following the hot store: who is online under which tenure, and when who was heard of.

-- name: is_under
SELECT EXISTS (SELECT 1 FROM providers WHERE roster = ?1 AND provider = ?2 AND online_tenure = ?3);

-- name: end
UPDATE providers SET online = 0, last_offline_us = ?4 WHERE roster = ?1 AND provider = ?2 AND online_tenure = ?3;

-- name: follow
UPDATE providers SET online_tenure = ?4 WHERE roster = ?1 AND provider = ?2 AND online_tenure = ?3;

-- name: hear
INSERT INTO heartbeats (roster, provider, heard_us)
SELECT roster, provider, ?3 FROM providers WHERE roster = ?1 AND provider = ?2
ON CONFLICT (roster, provider) DO UPDATE SET heard_us = excluded.heard_us WHERE excluded.heard_us > heard_us;

-- name: heard
SELECT heard_us FROM heartbeats WHERE roster = ?1 AND provider = ?2;
