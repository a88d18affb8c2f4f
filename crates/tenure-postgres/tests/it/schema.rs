//! The schema: made once, by whoever comes first, and refused when it is another's.

use std::sync::Arc;

use tenure_core::{ErrorKind, Ledger};
use tenure_testkit::postgres::shared;

use crate::servers::{cell, connect, ledger, patient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_that_start_at_once_make_it_once() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let mut tasks = Vec::new();
    for _ in 0..5 {
        let ledger = ledger(patient(&database));
        tasks.push(tokio::spawn(async move { ledger.prepare().await }));
    }
    for task in tasks {
        task.await.expect("a task").expect("a schema");
    }
    let admin = connect(&database).await;
    let steps = "SELECT count(*) = max(number) AND min(number) = 1 FROM tenure.migrations";
    assert_eq!(cell(&admin, steps).await, "true");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_is_newer_or_anothers_is_refused_clearly() {
    let Some(server) = shared() else { return };
    let database = server.database();
    ledger(patient(&database)).prepare().await.expect("a schema");
    let admin = connect(&database).await;
    let refusal = async || {
        let ledger = ledger(patient(&database));
        let error = ledger.now().await.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        error.to_string()
    };
    let newer = "INSERT INTO tenure.migrations (number, name, checksum) VALUES (999, 'later', 'x')";
    admin.batch_execute(newer).await.expect("a newer schema");
    let said = refusal().await;
    assert!(said.contains("update the program"), "{said}");
    let changed = "DELETE FROM tenure.migrations WHERE number = 999; UPDATE tenure.migrations SET checksum = 'x' \
                   WHERE number = 2";
    admin.batch_execute(changed).await.expect("another's schema");
    let said = refusal().await;
    assert!(said.contains("another build"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_may_not_change_it_says_so() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let mut options = patient(&database);
    options.migrate = false;
    let timid = ledger(options);
    let error = timid.now().await.expect_err("there is none yet");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    ledger(patient(&database)).prepare().await.expect("a schema");
    timid.now().await.expect("now there is");
    let findings = (Arc::clone(&timid) as Arc<dyn Ledger>).examine().await;
    let schema = findings.iter().find(|finding| finding.check == "ledger schema");
    assert_eq!(
        schema.expect("a finding").severity,
        tenure_core::store::Severity::Ok,
        "{findings:?}"
    );
}

/// Restored from a backup of an older version, or taken away for a while: no process has to be restarted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_schema_is_taken_up_without_restart() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let running = ledger(patient(&database));
    running.prepare().await.expect("a schema");
    let admin = connect(&database).await;
    let newest = cell(&admin, "SELECT max(number) FROM tenure.migrations").await;
    let older = "DROP TABLE tenure.heartbeat_passes; DROP FUNCTION tenure.read_heartbeats_wanted();
                 DROP FUNCTION tenure.want_heartbeats; DROP FUNCTION tenure.note_heartbeat_pass;
                 DROP FUNCTION tenure.read_heartbeat_pass; DROP TRIGGER log_begins ON tenure.provider_log;
                 DROP FUNCTION tenure.log_begins; DROP FUNCTION tenure.log_decided;
                 DROP FUNCTION IF EXISTS tenure.read_dirty_counts; DROP FUNCTION tenure.read_overview; DROP FUNCTION tenure.default_key;
                 DROP FUNCTION tenure.default_of; DROP FUNCTION tenure.default_changed CASCADE;
                 ALTER TABLE tenure.providers DROP COLUMN uses_default; DROP FUNCTION tenure.read_last_heartbeats;
                 DROP FUNCTION tenure.read_available(text, integer, bigint, bigint, text);
                 DELETE FROM tenure.migrations WHERE number > 5";
    admin.batch_execute(older).await.expect("an older schema");
    let error = running.overview().await.expect_err("it is older");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert_eq!(running.overview().await.expect("it is updated").rosters, [].into());
    assert_eq!(cell(&admin, "SELECT max(number) FROM tenure.migrations").await, newest);

    admin
        .batch_execute("DROP SCHEMA tenure CASCADE")
        .await
        .expect("it is gone");
    for _ in 0..3 {
        let error = running.rosters().await.expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    }
    let there = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'tenure')";
    assert_eq!(
        cell(&admin, there).await,
        "false",
        "an empty one would be in the way of a restore"
    );
    ledger(patient(&database)).prepare().await.expect("a schema");
    assert_eq!(running.rosters().await.expect("it is back"), []);
}
