-- What every step begins and ends with, and the ledger's clock.

-- name: high_water
SELECT high_water_us FROM clock;

-- name: because
UPDATE steps SET at_us = ?1, reason = ?2, follows = ?3;

-- name: over
UPDATE steps SET at_us = NULL, reason = NULL, follows = 0;

-- name: next_version
UPDATE steps SET last_version = last_version + 1 RETURNING last_version;
