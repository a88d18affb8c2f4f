-- In order, so that their count is the version.
SELECT checksum FROM tenure.migrations ORDER BY number;
