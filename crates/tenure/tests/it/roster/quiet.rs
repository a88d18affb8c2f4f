//! Heartbeats cost the ledger no transaction, by the database's own statistics.

use tenure::roster::{HeartbeatOutcome, Source};
use tenure_testkit::wait::until_async;
use tenure_testkit::{postgres, valkey};
use tokio::task::JoinSet;

use crate::roster::world::*;

const PROVIDERS: usize = 100;
const HEARTBEATS: usize = 5_000;

/// The number of transactions in the database, after all connections to it have closed: a connection reports its
/// statistics at the latest when it closes.
async fn transactions(server: &postgres::Server, database: &str) -> u64 {
    let others = format!("FROM pg_stat_activity WHERE datname = '{database}'");
    server
        .sql(&format!("SELECT pg_terminate_backend(pid) {others}"))
        .unwrap();
    until_async("all connections are gone", PATIENCE, async || {
        breathe().await;
        server.sql(&format!("SELECT count(*) {others}")).unwrap() == "0"
    })
    .await;
    let seen = format!("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{database}'");
    server.sql(&seen).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_need_no_ledger_statement() {
    let Some(valkey) = valkey::Server::start(valkey::Flavour::Valkey) else {
        return;
    };
    let Some(postgres) = postgres::Server::with(&["autovacuum=off"]) else {
        return;
    };
    let url = postgres.database();
    let database = url.rsplit('/').next().unwrap();
    prepare("quiet", &url, &stale_after(secs(3_600))).await;
    let process = Process::start("quiet", &valkey.url(), &url, still()).await;
    all_believe(std::slice::from_ref(&process)).await;
    for who in (0..PROVIDERS).map(numbered) {
        process.arrive(&who, None).await;
    }
    // A slow machine may not have marked all rows clean; the next drain is an hour away here.
    until_async("what was written is marked clean", PATIENCE, async || {
        let dirty = process.ledger.dirty(&process.name, 1_000).await.unwrap();
        let rows: Vec<_> = dirty.into_iter().map(|row| (row.provider, row.version)).collect();
        let cleaned = process.ledger.clean(&process.name, &rows).await;
        cleaned.is_ok() && rows.is_empty()
    })
    .await;
    let before = transactions(&postgres, database).await;
    let mut beats = JoinSet::new();
    for n in 0..HEARTBEATS {
        let roster = process.roster.clone();
        beats.spawn(async move { roster.heartbeat(&numbered(n % PROVIDERS), None).await });
    }
    while let Some(heard) = beats.join_next().await {
        assert_eq!(heard.unwrap().unwrap(), HeartbeatOutcome::Recorded(Source::Mirror));
    }
    assert_eq!(transactions(&postgres, database).await, before, "none at all");

    // Any statement would have been counted.
    process.ledger.now().await.unwrap();
    assert!(transactions(&postgres, database).await > before);
}
