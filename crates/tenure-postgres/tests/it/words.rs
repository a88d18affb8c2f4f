//! A refusal of the database that the ledger did not expect: the class, the database's own words, and what to do.

use std::sync::Arc;

use tenure_core::error::Outcome;
use tenure_core::ledger::{ProviderChange, ProviderSpec};
use tenure_core::store::Severity;
use tenure_core::{Error, ErrorKind, Ledger, ProviderId, RosterName};
use tenure_postgres::PostgresLedger;
use tenure_testkit::postgres::shared;
use tenure_testkit::wait::until_async;

use crate::faults::SOON;
use crate::servers::{cell, connect, ledger, long_timeouts};

async fn put(ledger: &PostgresLedger, capacity: u32) -> Result<ProviderChange, Error> {
    let spec = ProviderSpec {
        display_name: None,
        capacity: Some(capacity).into(),
    };
    let (roster, ann) = (
        RosterName::new("care").expect("a name"),
        ProviderId::new("ann").expect("a name"),
    );
    ledger.put_provider(&roster, &ann, &spec).await
}

#[track_caller]
fn says(error: &Error, kind: ErrorKind, words: &[&str]) {
    let said = error.chain();
    assert_eq!((error.kind(), error.outcome()), (kind, Outcome::Unchanged), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    for word in ["report it", "\n", "\x1b"] {
        assert!(!said.contains(word), "{word:?} is in: {said}");
    }
    assert!(said.len() < 1_000, "{} bytes: {said}", said.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_without_utf8_is_refused() {
    let Some(server) = shared() else { return };
    let database = server.database().replace("/test_", "/latin1_");
    let (_, name) = database.rsplit_once('/').expect("a name");
    let create = format!("CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
    server.sql(&create).expect("a database");
    let ledger = ledger(long_timeouts(&database));
    let error = ledger.prepare().await.expect_err("it cannot hold all names");
    says(&error, ErrorKind::Misconfigured, &["LATIN1", "ENCODING 'UTF8'"]);
    let admin = connect(&database).await;
    let there = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'tenure')";
    assert_eq!(cell(&admin, there).await, "false", "nothing is left behind");
    let findings = (Arc::clone(&ledger) as Arc<dyn Ledger>).examine().await;
    assert!(
        findings
            .iter()
            .any(|finding| finding.severity == Severity::Error && finding.detail.contains("LATIN1")),
        "{findings:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clash_with_another_schema_names_the_object() {
    let Some(server) = shared() else { return };
    for (theirs, words) in [
        (
            "CREATE TABLE tenure.providers (id int)",
            &["\"providers\" already exists"][..],
        ),
        ("CREATE VIEW tenure.migrations AS SELECT 1 AS number", &["checksum"]),
        ("CREATE TABLE tenure.migrations (id int)", &["checksum"]),
        (
            "CREATE FUNCTION tenure.ledger_now() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
            &["ledger_now"],
        ),
        (
            "CREATE TYPE tenure.engagements AS (a int)",
            &["\"engagements\" already exists"],
        ),
    ] {
        let database = server.database();
        let admin = connect(&database).await;
        let clash = format!("CREATE SCHEMA tenure; {theirs}");
        admin.batch_execute(&clash).await.expect("a schema of others");
        let error = ledger(long_timeouts(&database)).prepare().await.expect_err(theirs);
        says(&error, ErrorKind::Misconfigured, &[words, &["schema"]].concat());
    }
}

/// A trigger or a constraint of the operator refuses a row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_by_a_trigger_of_others_has_its_words() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let ledger = ledger(long_timeouts(&database));
    put(&ledger, 1).await.expect("a provider");
    let admin = connect(&database).await;
    for (theirs, words) in [
        (
            "CREATE FUNCTION public.no() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION E'no room\\n\\x1b[2J in the office'; END $$; \
             CREATE TRIGGER no BEFORE UPDATE ON tenure.providers FOR EACH ROW EXECUTE FUNCTION public.no()",
            "no room",
        ),
        (
            "DROP TRIGGER no ON tenure.providers; \
             ALTER TABLE tenure.providers ADD CONSTRAINT our_own_limit CHECK (capacity < 5)",
            "our_own_limit",
        ),
    ] {
        admin.batch_execute(theirs).await.expect("a trigger of others");
        let error = put(&ledger, 9).await.expect_err("it is refused");
        says(&error, ErrorKind::Misconfigured, &[words, "trigger"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_ended_by_an_administrator_is_unavailable() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let ledger = ledger(long_timeouts(&database));
    put(&ledger, 1).await.expect("a provider");
    let (blocker, admin) = (connect(&database).await, connect(&database).await);
    for (end, words) in [
        ("pg_cancel_backend", "canceling statement due to user request"),
        (
            "pg_terminate_backend",
            "terminating connection due to administrator command",
        ),
    ] {
        blocker
            .batch_execute("BEGIN; LOCK TABLE tenure.providers IN ACCESS EXCLUSIVE MODE")
            .await
            .expect("a lock");
        let call = tokio::spawn({
            let ledger = Arc::clone(&ledger);
            async move { put(&ledger, 9).await }
        });
        let ended = format!(
            "SELECT count({end}(pid)) FROM pg_stat_activity WHERE datname = current_database() \
             AND application_name = 'tenure' AND wait_event_type = 'Lock'"
        );
        until_async("the statement is ended", SOON, || async {
            cell(&admin, &ended).await == "1"
        })
        .await;
        let error = call.await.expect("a task").expect_err("it was ended");
        says(&error, ErrorKind::Unavailable, &[words, "administrator"]);
        blocker.batch_execute("ROLLBACK").await.expect("the end of the lock");
    }
    put(&ledger, 2).await.expect("it goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_connection_has_the_words_of_the_database() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let (before, name) = database.rsplit_once('/').expect("a name");
    let error = async |url: String| {
        let ledger = ledger(long_timeouts(&url));
        ledger.prepare().await.expect_err("it is refused")
    };
    let missing = error(format!("{before}/no_such_one")).await;
    says(&missing, ErrorKind::Misconfigured, &["\"no_such_one\" does not exist"]);
    let limit = format!("ALTER DATABASE {name} CONNECTION LIMIT 0; CREATE ROLE guest_{name} LOGIN");
    server.sql(&limit).expect("a limit");
    let full = error(database.replace("postgres@", &format!("guest_{name}@"))).await;
    says(&full, ErrorKind::Unavailable, &["too many connections for database"]);
}
