SELECT EXISTS (
    SELECT FROM pg_stat_activity a
    WHERE a.datname = current_database() AND a.usename = current_user AND a.pid <> pg_backend_pid()
      AND (a.state = 'disabled' OR (a.state <> 'idle' AND position($1 IN a.query) > 0)));
