
-- Who may do what.
REVOKE ALL ON {details} FROM {app};
REVOKE ALL ON FUNCTION {functions} FROM PUBLIC;
{owners}
GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {app};
COMMIT;
