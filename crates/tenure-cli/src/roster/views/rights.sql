
BEGIN;

-- Rights. A role without a login owns the views and does the writing; the application gets no right on Tenure's schema.
CREATE ROLE {bridge} NOLOGIN;
GRANT USAGE ON SCHEMA tenure, {schemas} TO {bridge};
GRANT SELECT, INSERT, UPDATE, DELETE ON tenure.providers, tenure.engagements TO {bridge};
GRANT SELECT ON tenure.heartbeats, tenure.rosters TO {bridge};
GRANT SELECT, INSERT, UPDATE ON tenure.outbox, tenure.revocations TO {bridge};
GRANT INSERT ON tenure.provider_log TO {bridge};
GRANT USAGE ON SEQUENCE tenure.versions TO {bridge};
GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {bridge};
{?sequences}GRANT USAGE ON SEQUENCE {sequences} TO {bridge};

LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE;

-- Daemons find a roster by this row.
INSERT INTO tenure.rosters (roster) VALUES ('{roster}') ON CONFLICT DO NOTHING;
