//! Commits that wait for a synchronous standby which does not exist.
#![expect(
    clippy::disallowed_methods,
    reason = "that new writes succeed within a second is about real time"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_core::error::Outcome;
use tenure_core::ledger::{Capacity, Move, NewEngagement, ProviderSpec, Status};
use tenure_core::store::Health;
use tenure_core::{EngagementId, Error, Ledger, ProviderId, RosterName};
use tenure_postgres::PostgresLedger;
use tenure_testkit::postgres::Server;
use tenure_testkit::wait::until_async;
use tokio_postgres::{Client, NoTls};

use crate::faults::SOON;
use crate::servers::{cell, connect, ledger, long_timeouts};

const POOL: usize = 8;
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

fn roster() -> RosterName {
    RosterName::new("care").expect("a name")
}

fn named(n: u64) -> (ProviderId, EngagementId) {
    let provider = ProviderId::new(format!("p{}", n % 20)).expect("a name");
    (provider, EngagementId::new(format!("e{n}")).expect("a name"))
}

fn spec(capacity: u32) -> ProviderSpec {
    ProviderSpec {
        display_name: None,
        capacity: Capacity::Own(capacity),
    }
}

/// A ledger whose calls time out, on a server without the standby that its commits wait for.
async fn unreplicated(server: &Server, call_timeout: Duration) -> Arc<PostgresLedger> {
    let mut options = long_timeouts(&server.url());
    options.pool_size = POOL;
    options.call_timeout = call_timeout;
    options.batch_timeout = call_timeout;
    let ledger = ledger(options);
    until_async("a schema", SOON, || async { ledger.prepare().await.is_ok() }).await;
    for n in 0..20 {
        let (provider, engagement) = named(n);
        until_async("a provider", SOON, || async {
            ledger.put_provider(&roster(), &provider, &spec(10)).await.is_ok()
        })
        .await;
        let new = NewEngagement {
            provider: Some(provider),
            ..NewEngagement::new(engagement)
        };
        until_async("an engagement", SOON, || async {
            ledger.create_engagement(&roster(), &new).await.is_ok()
        })
        .await;
    }
    standby(server, "nobody");
    until_commits_wait(server).await;
    ledger
}

/// Has commits wait for a standby of this name, or for none.
fn standby(server: &Server, name: &str) {
    let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'");
    server.sql(&set).expect("a setting");
    server.sql("SELECT pg_reload_conf()").expect("a reload");
}

/// Waits until the setting has reached all of the server's processes.
async fn until_commits_wait(server: &Server) {
    let admin = connect(&server.url()).await;
    until_async("commits wait", SOON, || async {
        let probe = connect(&server.url()).await;
        let cancel = probe.cancel_token();
        let write = "SELECT pg_logical_emit_message(true, 'probe', '')";
        let written = tokio::spawn(async move { probe.batch_execute(write).await });
        while cell(&admin, WAITING).await == "0" {
            if written.is_finished() {
                return false;
            }
        }
        cancel.cancel_query(NoTls).await.expect("a cancel request");
        written.await.expect("the probe").expect("its commit");
        true
    })
    .await;
}

/// One write of one of the kinds; `Ok` if it was acknowledged.
async fn write(ledger: &PostgresLedger, n: u64) -> Result<(), Error> {
    let (roster, (provider, engagement)) = (roster(), named(n));
    match n % 7 {
        0 => ledger.put_provider(&roster, &provider, &spec(11)).await.map(drop),
        1 => ledger
            .create_engagement(&roster, &NewEngagement::new(engagement))
            .await
            .map(drop),
        2 => {
            let to = Move {
                status: Some(Status::Ended),
                ..Move::default()
            };
            ledger.move_engagement(&roster, &named(n % 20).1, &to).await.map(drop)
        }
        3 => ledger.deactivate(&roster, &provider).await.map(drop),
        4 => ledger.go_online(&roster, &provider, None).await.map(drop),
        5 => ledger
            .remove_provider(&roster, &ProviderId::new("absent")?)
            .await
            .map(drop),
        _ => ledger
            .put_provider(&roster, &ProviderId::new(format!("new{n}"))?, &spec(1))
            .await
            .map(drop),
    }
}

async fn until_none_waits(admin: &Client) {
    until_async("no commit waits", SOON, || async { cell(admin, WAITING).await == "0" }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_without_a_standby_are_unknown_and_leave_reads_alone() {
    let Some(server) = Server::start() else { return };
    let ledger = unreplicated(&server, Duration::from_millis(500)).await;
    let admin = connect(&server.url()).await;
    cell(&admin, "SELECT set_config('synchronous_commit', 'local', false)").await;
    let writing = tokio::spawn({
        let ledger = Arc::clone(&ledger);
        async move {
            let mut written = tokio::task::JoinSet::new();
            for n in 0..200 {
                let ledger = Arc::clone(&ledger);
                written.spawn(async move { write(&ledger, n).await });
            }
            written.join_all().await
        }
    });
    let mut most = 0;
    while !writing.is_finished() {
        let read = ledger.provider(&roster(), &named(1).0).await;
        assert!(read.expect("reads are served").is_some());
        let waiting: usize = cell(&admin, WAITING).await.parse().expect("a number");
        most = most.max(waiting);
    }
    assert!((1..POOL).contains(&most), "{most} connections wait");
    let (mut unknown, mut unchanged) = (0, 0);
    for result in writing.await.expect("the writes") {
        match result.expect_err("no standby has it").outcome() {
            Outcome::Unknown => unknown += 1,
            Outcome::Unchanged => unchanged += 1,
        }
    }
    assert!(
        unknown >= 1 && unchanged >= 100,
        "{unknown} unknown, {unchanged} unchanged"
    );
    ledger.overview().await.expect("reads are served");
    let is_down = |health| matches!(health, Health::Down { reason } if reason.contains("writes fail"));
    assert!(is_down(ledger.health()), "it takes no writes");
    standby(&server, "");
    let asked = Instant::now();
    until_async("writes are acknowledged", SOON, || async {
        ledger.put_provider(&roster(), &named(1).0, &spec(77)).await.is_ok()
    })
    .await;
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!(ledger.health(), Health::Up);
    until_none_waits(&admin).await;
    assert!(ledger.connections().0 < POOL);
}

/// An administrator cancels the wait: Postgres answers with success and a warning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_wait_was_cancelled_is_unknown() {
    let Some(server) = Server::start() else { return };
    let ledger = unreplicated(&server, SOON).await;
    let admin = connect(&server.url()).await;
    for n in 0..14 {
        let writing = tokio::spawn({
            let ledger = Arc::clone(&ledger);
            async move { write(&ledger, n).await }
        });
        until_async("the commit waits", SOON, || async {
            cell(&admin, WAITING).await == "1"
        })
        .await;
        cell(
            &admin,
            "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
        )
        .await;
        let error = writing.await.expect("a write").expect_err("no standby has it");
        assert!(
            error.is_unavailable() && error.outcome() == Outcome::Unknown,
            "{n}: {error:?}"
        );
        // The row is there now, and its second answer must not rest on that.
        let again = tokio::spawn({
            let ledger = Arc::clone(&ledger);
            async move { write(&ledger, n).await }
        });
        until_async("the retry waits", SOON, || async { cell(&admin, WAITING).await == "1" }).await;
        cell(
            &admin,
            "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
        )
        .await;
        let error = again.await.expect("a write").expect_err("no standby has it");
        assert_eq!(error.outcome(), Outcome::Unknown, "{n} again: {error:?}");
    }
}

/// The time-out of a call ends while its commit waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timed_out_commit_is_never_acknowledged() {
    let Some(server) = Server::start() else { return };
    for within in [200, 700] {
        let ledger = unreplicated(&server, Duration::from_millis(within)).await;
        for n in 0..20 {
            write(&ledger, n).await.expect_err("no standby has it");
        }
        standby(&server, "");
        until_none_waits(&connect(&server.url()).await).await;
        ledger.close().await;
    }
}
