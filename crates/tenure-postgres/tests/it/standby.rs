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
use tenure_testkit::wait::{soak_factor, until_async};
use tokio_postgres::{Client, NoTls};

use crate::faults::SOON;
use crate::servers::{cell, connect, ledger, long_timeouts};

const POOL: usize = 8;
/// Writes of a round, spread over a ledger for each of the time-outs (ms).
const WRITES: u64 = 100;
const TIMEOUTS: [u64; 4] = [200, 500, 1_000, 2_000];
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
    let ledger = replicated(server, call_timeout).await;
    standby(server, "nobody");
    until_commits_wait(server).await;
    ledger
}

/// A ledger whose calls time out, with 20 providers and their engagements. The server shows its connections by a name.
async fn replicated(server: &Server, call_timeout: Duration) -> Arc<PostgresLedger> {
    let name = format!("ledger{}", call_timeout.as_millis());
    let mut options = long_timeouts(&format!("{}?application_name={name}", server.url()));
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

/// The most connections of one ledger that the server has.
const CONNECTIONS: &str = "SELECT coalesce(max(n), 0) FROM (SELECT count(*) n FROM pg_stat_activity \
                           WHERE application_name LIKE 'ledger%' GROUP BY application_name) each";

/// The writes of one round and their results. All the while reads are served, and no more connections are used than allowed.
async fn write_in_vain(ledgers: &[Arc<PostgresLedger>], admin: &Client, round: u64) -> (Vec<(u64, Error)>, String) {
    let mut written = tokio::task::JoinSet::new();
    for n in round * WRITES..(round + 1) * WRITES {
        let ledger = Arc::clone(&ledgers[n as usize % ledgers.len()]);
        written.spawn(async move { (n, write(&ledger, n).await) });
    }
    let writing = tokio::spawn(written.join_all());
    let (mut waited, mut connected, mut reads) = (0, 0, 0);
    while !writing.is_finished() {
        for ledger in ledgers {
            // A stall of the machine may cost one read its time-out.
            until_async("reads are served", SOON, || async {
                let read = ledger.provider(&roster(), &named(1).0).await;
                read.is_ok_and(|row| row.is_some())
            })
            .await;
            reads += 1;
        }
        let count = async |of| cell(admin, of).await.parse::<usize>().expect("a number");
        waited = waited.max(count(WAITING).await);
        connected = connected.max(count(CONNECTIONS).await);
    }
    let figures = format!("{waited} commits waited, {connected} connections of a ledger, {reads} reads");
    assert!((1..POOL * ledgers.len()).contains(&waited), "{waited} commits wait");
    assert!(connected <= POOL, "{connected} connections of a pool of {POOL}");
    let results = writing.await.expect("the writes").into_iter();
    let failed = results.map(|(n, result)| (n, result.expect_err("no standby has it")));
    (failed.collect(), figures)
}

/// Whether the row that only this write makes is in the database; `None` if there is no such row.
async fn is_there(admin: &Client, n: u64) -> Option<bool> {
    let found = match n % 7 {
        1 if n >= 20 => format!("SELECT count(*) = 1 FROM tenure.engagements WHERE engagement = 'e{n}'"),
        6 => format!("SELECT count(*) = 1 FROM tenure.providers WHERE provider = 'new{n}'"),
        _ => return None,
    };
    Some(cell(admin, &found).await == "true")
}

/// What the ledger reads, or answers to the same write again, is what the database says about a write in doubt.
async fn decide(ledger: &PostgresLedger, admin: &Client, n: u64) {
    let (provider, engagement) = match n % 7 {
        6 => (ProviderId::new(format!("new{n}")).expect("a name"), named(n).1),
        _ => named(n),
    };
    if let Some(is_there) = is_there(admin, n).await {
        let read = match n % 7 {
            1 => ledger.engagement(&roster(), &engagement).await.map(|row| row.is_some()),
            _ => ledger.provider(&roster(), &provider).await.map(|row| row.is_some()),
        };
        assert_eq!(read.expect("a look-up"), is_there, "{n}");
    }
    if let Err(error) = write(ledger, n).await {
        assert!(!error.is_unavailable(), "{n} again: {error:?}");
    }
    assert_ne!(is_there(admin, n).await, Some(false), "{n} was acknowledged");
    let row = ledger.provider(&roster(), &provider).await.expect("a look-up");
    let told = row.map(|row| format!("{} {} {}", row.capacity, row.active, row.online.is_some()));
    let sql =
        format!("SELECT concat_ws(' ', capacity, active, online) FROM tenure.providers WHERE provider = '{provider}'");
    let says = cell(admin, &sql.replace("active, online", "active::text, online::text")).await;
    assert_eq!(told.unwrap_or_default(), says, "{n}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_without_a_standby_are_unknown_and_leave_reads_alone() {
    let Some(server) = Server::start() else { return };
    let mut ledgers = Vec::new();
    for within in TIMEOUTS {
        ledgers.push(replicated(&server, Duration::from_millis(within)).await);
    }
    let admin = connect(&server.url()).await;
    cell(&admin, "SELECT set_config('synchronous_commit', 'local', false)").await;
    let (mut doubts, mut none) = (0, 0);
    for round in 0..u64::from(soak_factor()) {
        standby(&server, "nobody");
        until_commits_wait(&server).await;
        let (failed, figures) = write_in_vain(&ledgers, &admin, round).await;
        println!("round {round}: {figures}");
        ledgers[3].overview().await.expect("reads are served");
        let is_down = |health| matches!(health, Health::Down { reason } if reason.contains("writes fail"));
        assert!(
            ledgers.iter().any(|ledger| is_down(ledger.health())),
            "they take no writes"
        );
        standby(&server, "");
        for ledger in &ledgers {
            let asked = Instant::now();
            until_async("writes are acknowledged", SOON, || async {
                ledger.put_provider(&roster(), &named(1).0, &spec(77)).await.is_ok()
            })
            .await;
            assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
            assert_eq!(ledger.health(), Health::Up);
        }
        until_none_waits(&admin).await;
        for (n, error) in failed {
            let ledger = &ledgers[3];
            match error.outcome() {
                Outcome::Unknown => {
                    doubts += 1;
                    decide(ledger, &admin, n).await;
                }
                Outcome::Unchanged => {
                    none += 1;
                    assert_ne!(is_there(&admin, n).await, Some(true), "{n}: {error:?}");
                }
            }
        }
    }
    println!("0 acknowledged; {doubts} unknown, each decided as the database says; {none} unchanged");
    assert!(doubts >= 1 && none >= 1, "{doubts} unknown, {none} unchanged");
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
