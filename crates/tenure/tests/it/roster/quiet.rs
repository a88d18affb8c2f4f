//! Heartbeats cost the ledger nothing, by the word of the database itself.

use tenure::roster::{Heard, Source};
use tenure_testkit::wait::until_async;
use tenure_testkit::{postgres, valkey};
use tokio::task::JoinSet;

use crate::roster::world::*;

const PROVIDERS: usize = 100;
const HEARTBEATS: usize = 5_000;

/// How many transactions the database has seen, once every connection to it has told and is gone. A connection tells
/// when it ends, and now and then before.
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
async fn heartbeats_make_no_statement() {
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
    // What a slow machine has not marked clean in time waits for the next drain, which is an hour away here.
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
        assert_eq!(heard.unwrap().unwrap(), Heard::Recorded(Source::Mirror));
    }
    assert_eq!(transactions(&postgres, database).await, before, "none at all");

    // What is counted here would have been seen.
    process.ledger.now().await.unwrap();
    assert!(transactions(&postgres, database).await > before);
}
