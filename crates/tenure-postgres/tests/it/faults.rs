//! Servers that are killed, frozen, full or unreachable: a call never hangs, and its outcome is correct.
#![expect(
    clippy::disallowed_methods,
    reason = "that a call gives up in time is about real time"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_core::error::Outcome;
use tenure_core::ledger::{ProviderChange, ProviderSpec};
use tenure_core::store::Health;
use tenure_core::{Error, ErrorKind, Ledger, ProviderId, RosterName};
use tenure_postgres::{PostgresLedger, PostgresOptions};
use tenure_testkit::postgres::{Server, shared};
use tenure_testkit::wait::until_async;
use tenure_testkit::{Mode, Proxy};

use crate::servers::{cell, connect, ledger, long_timeouts};

pub(crate) const SOON: Duration = Duration::from_secs(30);

fn roster() -> RosterName {
    RosterName::new("care").expect("a name")
}

fn ann() -> ProviderId {
    ProviderId::new("ann").expect("a name")
}

async fn put(ledger: &PostgresLedger, capacity: u32) -> Result<ProviderChange, Error> {
    let spec = ProviderSpec {
        display_name: None,
        capacity: Some(capacity).into(),
    };
    ledger.put_provider(&roster(), &ann(), &spec).await
}

async fn capacity(ledger: &PostgresLedger) -> Result<u32, Error> {
    let row = ledger.provider(&roster(), &ann()).await?;
    Ok(row.expect("she was written down").capacity)
}

/// A ledger with short time-outs, prepared with long ones.
async fn short_timeouts(url: &str) -> Arc<PostgresLedger> {
    let first = ledger(long_timeouts(url));
    put(&first, 1).await.expect("a provider");
    first.close().await;
    let mut options = PostgresOptions::new(url).expect("a good URL");
    // Longer than a short stall of the machine: what a test expects within this time is done in it.
    options.call_timeout = Duration::from_secs(4);
    options.pool_size = 4;
    let ledger = ledger(options);
    until_async("the first answer", SOON, || async { capacity(&ledger).await.is_ok() }).await;
    ledger
}

#[track_caller]
fn is_away<T: std::fmt::Debug>(result: Result<T, Error>, outcome: Outcome) {
    let error = result.expect_err("the ledger is away");
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, outcome),
        "{error:?}"
    );
}

async fn is_back(ledger: &PostgresLedger, capacity: u32) {
    until_async("it writes again", SOON, || async {
        put(ledger, capacity).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_fails_calls_fast_and_is_found_again() {
    let Some(server) = Server::start() else { return };
    let ledger = ledger(long_timeouts(&server.url()));
    put(&ledger, 5).await.expect("a provider");
    server.kill();
    until_async("no connection is left", SOON, || async {
        put(&ledger, 6)
            .await
            .is_err_and(|error| error.outcome() == Outcome::Unchanged)
    })
    .await;
    let asked = Instant::now();
    is_away(capacity(&ledger).await, Outcome::Unchanged);
    assert!(
        asked.elapsed() < long_timeouts(&server.url()).connect_timeout,
        "a refused connection fails without a wait"
    );
    assert!(matches!(ledger.health(), Health::Down { .. }));
    server.restart_with_data();
    until_async("it reads again", SOON, || async { capacity(&ledger).await.is_ok() }).await;
    assert_eq!(capacity(&ledger).await.expect("a look-up"), 5);
    is_back(&ledger, 7).await;
    assert_eq!(ledger.health(), Health::Up);
}

/// Invariant 13: a call that timed out does not take effect later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timed_out_calls_to_a_frozen_server_have_no_effect() {
    let Some(server) = Server::start() else { return };
    let ledger = short_timeouts(&server.url()).await;
    server.pause();
    let asked = Instant::now();
    is_away(put(&ledger, 9).await, Outcome::Unknown);
    assert!(asked.elapsed() < SOON, "never a hang");
    let mut told = Vec::new();
    for _ in 0..20 {
        let ledger = Arc::clone(&ledger);
        told.push(tokio::spawn(async move { put(&ledger, 9).await }));
    }
    for task in told {
        assert!(task.await.expect("a task").expect_err("it is frozen").is_unavailable());
    }
    assert!(ledger.connections().0 < 4);
    server.resume();
    until_async("it reads again", SOON, || async { capacity(&ledger).await.is_ok() }).await;
    let admin = connect(&server.url()).await;
    let others = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure' AND state = 'active'";
    until_async("all have had their say", SOON, || async {
        cell(&admin, others).await == "0"
    })
    .await;
    assert_eq!(capacity(&ledger).await.expect("a look-up"), 1);
    is_back(&ledger, 7).await;
}

/// The reply was lost: the call may have taken effect, and here it did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_is_an_unknown_outcome() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let proxy = Proxy::start(server.addr());
    let through = database.replace(&server.addr().to_string(), &proxy.addr().to_string());
    let ledger = short_timeouts(&through).await;
    proxy.set(Mode::DropReplies);
    is_away(put(&ledger, 9).await, Outcome::Unknown);
    is_away(capacity(&ledger).await, Outcome::Unchanged);
    let admin = connect(&database).await;
    assert_eq!(cell(&admin, "SELECT capacity FROM tenure.providers").await, "9");
    proxy.set(Mode::Pass);
    is_back(&ledger, 3).await;
}

/// The network falls silent during a statement, repeatedly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_network_leaks_no_connection() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let proxy = Proxy::start(server.addr());
    let through = database.replace(&server.addr().to_string(), &proxy.addr().to_string());
    let ledger = short_timeouts(&through).await;
    for round in 0..3 {
        proxy.set(Mode::BlackHole);
        let mut calls = Vec::new();
        for _ in 0..10 {
            let ledger = Arc::clone(&ledger);
            calls.push(tokio::spawn(async move { capacity(&ledger).await }));
        }
        for call in calls {
            is_away(call.await.expect("a task"), Outcome::Unchanged);
        }
        proxy.set(Mode::Pass);
        is_back(&ledger, 10 + round).await;
    }
    assert_eq!(capacity(&ledger).await.expect("a look-up"), 12);
    assert!(ledger.connections().0 < 4);
}

/// A primary becomes read-only and writable again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_primary_is_reported_and_dropped() {
    let Some(server) = Server::start() else { return };
    let ledger = short_timeouts(&server.url()).await;
    let switch = |to: &str| {
        let psql = |statement: &str| server.sql(statement).expect("an answer");
        psql(&format!("ALTER SYSTEM SET default_transaction_read_only = {to}"));
        psql("SELECT pg_reload_conf()");
    };
    switch("on");
    let says_so = |error: &Error| error.is_unavailable() && error.chain().contains("read-only");
    until_async("the error says it", SOON, || async {
        put(&ledger, 9).await.is_err_and(|error| says_so(&error))
    })
    .await;
    let error = put(&ledger, 9).await.expect_err("it is read-only");
    assert_eq!(error.outcome(), Outcome::Unchanged);
    switch("off");
    is_back(&ledger, 5).await;
    assert_eq!(capacity(&ledger).await.expect("a look-up"), 5);
}

/// "Sorry, too many clients already."
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_is_reported_and_retried() {
    let Some(server) = Server::with(&["max_connections=8", "superuser_reserved_connections=0"]) else {
        return;
    };
    let mut options = long_timeouts(&server.url());
    options.call_timeout = Duration::from_secs(5);
    let prepared = ledger(options.clone());
    put(&prepared, 1).await.expect("a provider");
    prepared.close().await;
    drop(prepared);
    let mut crowd = Vec::new();
    while crowd.len() < 8 {
        // Closed connections may still be listed for a moment.
        if let Ok(one) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await {
            crowd.push(one);
        }
    }
    let ledger = ledger(options);
    let error = put(&ledger, 9).await.expect_err("the server is full");
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Unchanged),
        "{error:?}"
    );
    assert!(error.chain().contains("no connection left"), "{error:?}");
    crowd.clear();
    is_back(&ledger, 5).await;
}

/// With any number of callers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pool_never_exceeds_its_size() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let mut options = long_timeouts(&database);
    options.pool_size = 4;
    let ledger = ledger(options);
    put(&ledger, 1).await.expect("a provider");
    let admin = connect(&database).await;
    let mut calls = Vec::new();
    for n in 0..400u32 {
        let ledger = Arc::clone(&ledger);
        calls.push(tokio::spawn(async move {
            if n % 2 == 0 {
                capacity(&ledger).await.map(drop)
            } else {
                put(&ledger, n).await.map(drop)
            }
        }));
    }
    let ours = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
                AND backend_type = 'client backend'";
    while calls.iter().any(|call| !call.is_finished()) {
        let seen: usize = cell(&admin, ours).await.parse().expect("a number");
        assert!(seen <= 4, "{seen} connections");
        assert!(ledger.connections().0 <= 4);
    }
    for call in calls {
        call.await.expect("a task").expect("an answer");
    }
}

/// A cancelled caller leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_caller_leaves_no_transaction() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let mut options = long_timeouts(&database);
    options.pool_size = 4;
    let ledger = ledger(options);
    put(&ledger, 1).await.expect("a provider");
    for n in 0..200u32 {
        let task = tokio::spawn({
            let ledger = Arc::clone(&ledger);
            async move { put(&ledger, n).await }
        });
        for _ in 0..n % 17 {
            tokio::task::yield_now().await;
        }
        task.abort();
        let _ = task.await;
    }
    let admin = connect(&database).await;
    // Statements sent before the cancellation may still run.
    let busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
                AND state <> 'idle'";
    until_async("nothing is under way", SOON, || async {
        cell(&admin, busy).await == "0"
    })
    .await;
    put(&ledger, 777).await.expect("the next one");
    assert_eq!(capacity(&ledger).await.expect("a look-up"), 777);
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in %'";
    assert_eq!(cell(&admin, open).await, "0");
    assert!(ledger.connections().0 < 4);
}

/// Each cause has its own error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_connection_names_its_cause() {
    let Some(server) = shared() else { return };
    let nowhere = format!("postgres://postgres@{}/nowhere", server.addr());
    let error = ledger(long_timeouts(&nowhere))
        .now()
        .await
        .expect_err("no such database");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    let stranger = server.url().replace("postgres@", "stranger@");
    let error = ledger(long_timeouts(&stranger)).now().await.expect_err("no such user");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    let closed = tenure_testkit::port::Port::reserve();
    let wrong = format!("postgres://postgres@{}/postgres", closed.addr());
    let error = ledger(long_timeouts(&wrong))
        .now()
        .await
        .expect_err("the port is closed");
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Unchanged),
        "{error:?}"
    );
}
