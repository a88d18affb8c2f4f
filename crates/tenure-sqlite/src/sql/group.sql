-- What a group knows about itself, and the high-water mark of the clock.

-- name: insert
INSERT INTO meta (name, born_us, tick_us, resumed_us, seq, last_event, oldest_event)
VALUES (?1, ?2, ?2, ?2, 0, ?2, ?2 + 1);

-- name: update
UPDATE meta
SET tick_us = ?2, resumed_us = ?3, seq = ?4, last_event = ?5, oldest_event = ?6, min_ttl_us = ?7, max_ttl_us = ?8,
    unsettled_cause = ?9, unsettled_until_us = ?10, brake_since_us = ?11, brake_until_us = ?12,
    settled_us = ?13
WHERE grp = ?1;

-- name: all
SELECT grp, name, born_us, tick_us, resumed_us, seq, last_event, oldest_event, min_ttl_us, max_ttl_us,
       unsettled_cause, unsettled_until_us, brake_since_us, brake_until_us, settled_us
FROM meta;

-- name: one
SELECT grp, name, born_us, tick_us, resumed_us, seq, last_event, oldest_event, min_ttl_us, max_ttl_us,
       unsettled_cause, unsettled_until_us, brake_since_us, brake_until_us, settled_us
FROM meta
WHERE name = ?1;

-- name: log
SELECT grp, last_event, oldest_event FROM meta WHERE name = ?1;

-- name: high_water
SELECT max(high_water_us, (SELECT coalesce(max(tick_us), 0) FROM meta)) FROM clock;

-- name: raise_high_water
UPDATE clock SET high_water_us = max(high_water_us, ?1);

-- name: forget_events
DELETE FROM events WHERE grp = ?1;

-- name: forget_lapses
DELETE FROM lapses WHERE grp = ?1;

-- name: forget
DELETE FROM meta WHERE grp = ?1;
