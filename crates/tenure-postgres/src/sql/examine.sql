SELECT current_setting('server_version') AS server_version,
       current_setting('server_version_num') AS server_version_num,
       current_setting('default_transaction_isolation') AS isolation,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('fsync') AS fsync,
       current_setting('statement_timeout') AS statement_timeout,
       pg_is_in_recovery() AS standby,
       current_setting('transaction_read_only') AS read_only,
       (SELECT count(*) FROM tenure.migrations) AS schema_version;
