SELECT current_setting('server_version') AS server_version,
       current_setting('server_version_num') AS server_version_num,
       current_setting('default_transaction_isolation') AS isolation,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('fsync') AS fsync,
       current_setting('statement_timeout') AS statement_timeout,
       (SELECT count(*) FROM tenure.migrations) AS schema_version;
