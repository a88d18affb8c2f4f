//! The schema: created once by the first process, and refused if another program created it.

use std::sync::Arc;

use tenure_core::{ErrorKind, Ledger};
use tenure_testkit::postgres::shared;

use crate::servers::{cell, connect, ledger, long_timeouts};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_starts_create_the_schema_once() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let mut tasks = Vec::new();
    for _ in 0..5 {
        let ledger = ledger(long_timeouts(&database));
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
async fn a_newer_or_foreign_schema_is_refused_with_a_reason() {
    let Some(server) = shared() else { return };
    let database = server.database();
    ledger(long_timeouts(&database)).prepare().await.expect("a schema");
    let admin = connect(&database).await;
    let refusal = async || {
        let ledger = ledger(long_timeouts(&database));
        let error = ledger.now().await.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        error.to_string()
    };
    let newer = "INSERT INTO tenure.migrations (number, name, checksum) VALUES (999, 'later', 'x')";
    admin.batch_execute(newer).await.expect("a newer schema");
    let said = refusal().await;
    assert!(said.contains("update the program"), "{said}");
    let changed = "DELETE FROM tenure.migrations WHERE number = 999; UPDATE tenure.migrations SET checksum = 'x' \
                   WHERE number = 1";
    admin.batch_execute(changed).await.expect("another's schema");
    let said = refusal().await;
    assert!(said.contains("another build") && said.contains("DROP SCHEMA"), "{said}");
    // The schema of a build from before the release: more steps, and others.
    admin.batch_execute(newer).await.expect("more steps");
    let said = refusal().await;
    assert!(said.contains("another build"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_without_migrate_reports_a_missing_schema() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let mut options = long_timeouts(&database);
    options.migrate = false;
    let read_only = ledger(options);
    let error = read_only.now().await.expect_err("there is none yet");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    ledger(long_timeouts(&database)).prepare().await.expect("a schema");
    read_only.now().await.expect("now there is");
    let findings = (Arc::clone(&read_only) as Arc<dyn Ledger>).examine().await;
    let schema = findings.iter().find(|finding| finding.check == "ledger schema");
    assert_eq!(
        schema.expect("a finding").severity,
        tenure_core::store::Severity::Ok,
        "{findings:?}"
    );
}

/// No process needs a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_schema_is_taken_up_again_once_it_is_back() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let running = ledger(long_timeouts(&database));
    running.prepare().await.expect("a schema");
    let admin = connect(&database).await;
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
    ledger(long_timeouts(&database)).prepare().await.expect("a schema");
    assert_eq!(running.rosters().await.expect("it is back"), []);
}
