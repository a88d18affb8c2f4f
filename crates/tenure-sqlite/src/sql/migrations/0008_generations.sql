-- The generation of each grant and reservation: of an exclusive grant its token.

ALTER TABLE leases ADD COLUMN generation INTEGER NOT NULL DEFAULT 1;
UPDATE leases SET generation =
    (SELECT min(token) FROM leases AS other WHERE other.grp = leases.grp AND other.lease = leases.lease);
ALTER TABLE reserved ADD COLUMN generation INTEGER NOT NULL DEFAULT 1;
