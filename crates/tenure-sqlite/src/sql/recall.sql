-- Whether the file is whole, in the row of the clock.

-- name: read
SELECT identity, commits, wait_until_us, wait_why,
       (SELECT coalesce(max(max_ttl_us), 0) FROM meta), (SELECT EXISTS (SELECT 1 FROM meta))
FROM clock;

-- name: identity
SELECT identity FROM clock;

-- name: base
SELECT identity, commits FROM clock;

-- name: begin
UPDATE clock SET identity = ?1, commits = ?2, wait_until_us = ?3, wait_why = ?4;

-- name: commit
UPDATE clock SET commits = ?1, high_water_us = max(high_water_us, ?2), wait_until_us = ?3, wait_why = ?4;
