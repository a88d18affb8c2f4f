//! Concurrent instances of the same program.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_core::ledger::{
    Candidates, EndedTenure, Expiry, Move, NewEngagement, ProviderSpec, Reassign, ReserveOutcome, Status,
};
use tenure_core::membership::EndReason;
use tenure_core::{EngagementId, Ledger, ProviderId, RosterName, StoreTime, TenureId, Term};
use tenure_postgres::PostgresLedger;
use tenure_testkit::postgres::shared;
use tokio_postgres::Client;

use crate::servers::{cell, connect, ledger, long_timeouts};

fn roster() -> RosterName {
    RosterName::new("care").expect("a name")
}

fn provider(n: usize) -> ProviderId {
    ProviderId::new(format!("p{n:04}")).expect("a name")
}

fn tenure(n: usize) -> TenureId {
    TenureId::new(provider(n).member(), Term::new(7).expect("a term"))
}

fn engagement(n: usize) -> EngagementId {
    EngagementId::new(format!("e{n}")).expect("a name")
}

/// Instances on one new database with this many providers online.
async fn instances(count: usize, url: &str, providers: usize, capacity: u32) -> (Vec<Arc<PostgresLedger>>, Client) {
    let all: Vec<_> = (0..count).map(|_| ledger(long_timeouts(url))).collect();
    all[0].prepare().await.expect("a schema");
    for n in 0..providers {
        let spec = ProviderSpec {
            display_name: None,
            capacity: Some(capacity).into(),
        };
        let (roster, name) = (roster(), provider(n));
        all[0].put_provider(&roster, &name, &spec).await.expect("a provider");
        let online = all[0].go_online(&roster, &name, Some(&tenure(n))).await;
        online.expect("online");
    }
    (all, connect(url).await)
}

async fn deadlocks(client: &Client) -> String {
    let flush = "SELECT pg_stat_force_next_flush()";
    // Older servers update the statistics themselves.
    let _ = client.batch_execute(flush).await;
    cell(
        client,
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()",
    )
    .await
}

/// Two instances, 10,000 calls, 5,000 places.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_reserves_for_five_thousand_places() {
    let Some(server) = shared() else { return };
    let (both, admin) = instances(2, &server.database(), 200, 25).await;
    let begun = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for worker in 0..32 {
        let (ledger, begun) = (Arc::clone(&both[worker % 2]), Arc::clone(&begun));
        tasks.push(tokio::spawn(async move {
            let mut got: BTreeMap<String, u32> = BTreeMap::new();
            loop {
                let n = begun.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if n >= 10_000 {
                    return got;
                }
                let mut names: Vec<ProviderId> = (0..200).map(provider).collect();
                names.rotate_left(n * 7 % 200);
                let new = NewEngagement::new(engagement(n));
                let candidates = match n % 2 {
                    0 => Candidates::Among(names),
                    _ => Candidates::ANYONE,
                };
                match ledger.reserve(&roster(), &new, &candidates).await.expect("an answer") {
                    ReserveOutcome::Reserved(change) => {
                        let name = change.engagement.provider.expect("a provider").to_string();
                        *got.entry(name).or_default() += 1;
                    }
                    ReserveOutcome::NoneAvailable => {}
                    ReserveOutcome::Conflict(row) => panic!("{row:?}"),
                }
            }
        }));
    }
    let mut places: BTreeMap<String, u32> = BTreeMap::new();
    for task in tasks {
        for (name, count) in task.await.expect("a task") {
            *places.entry(name).or_default() += count;
        }
    }
    assert_eq!(places.values().sum::<u32>(), 5_000);
    assert!(places.values().all(|count| *count == 25), "{places:?}");
    let wrong = "SELECT count(*) FROM tenure.providers p WHERE occupancy <> 25 OR occupancy <> \
                 (SELECT count(*) FROM tenure.engagements e WHERE e.provider = p.provider)";
    assert_eq!(cell(&admin, wrong).await, "0");
    assert_eq!(deadlocks(&admin).await, "0");
}

/// Each end is applied by one statement and logged once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_instances_follow_the_same_thousand_ends() {
    let Some(server) = shared() else { return };
    let (five, admin) = instances(5, &server.database(), 1_000, 1).await;
    let mut tasks = Vec::new();
    for (turn, ledger) in five.into_iter().enumerate() {
        tasks.push(tokio::spawn(async move {
            let ended = |n| EndedTenure {
                tenure: tenure(n),
                at: StoreTime::from_micros(1),
                reason: if n % 3 == 0 { EndReason::Left } else { EndReason::Lapsed },
                heard_at: None,
            };
            let mut batch: Vec<EndedTenure> = (0..1_000).map(ended).collect();
            batch.rotate_left(turn * 200);
            if turn % 2 == 1 {
                batch.reverse();
            }
            ledger
                .offline_ended(&roster(), &batch)
                .await
                .expect("a batch")
                .offline
                .len()
        }));
    }
    let mut changed = 0;
    for task in tasks {
        changed += task.await.expect("a task");
    }
    assert_eq!(changed, 1_000);
    let logged = "SELECT count(*) || ' ' || count(DISTINCT provider) FROM tenure.provider_log WHERE change = 'offline'";
    assert_eq!(cell(&admin, logged).await, "1000 1000");
    assert_eq!(deadlocks(&admin).await, "0");
}

/// All steps that lock many rows run concurrently, in every order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_batches_never_deadlock() {
    let Some(server) = shared() else { return };
    let (four, admin) = instances(4, &server.database(), 60, 99).await;
    let mut tasks = Vec::new();
    for worker in 0..8usize {
        let ledger = Arc::clone(&four[worker % 4]);
        tasks.push(tokio::spawn(async move {
            let roster = roster();
            for round in 0..25usize {
                let order = |k: usize| (k * (2 * worker + 1) * 7 + round * 13) % 60;
                let beats: Vec<_> = (0..80)
                    .map(|k| (provider(order(k)), StoreTime::from_micros((round * 100 + k) as u64 + 1)))
                    .collect();
                ledger.record_heartbeats(&roster, &beats).await.expect("heartbeats");
                let name = engagement(round % 6);
                let new = NewEngagement {
                    engagement: name.clone(),
                    provider: Some(provider(0)),
                    status: Status::Active,
                    expires_in: None,
                    active_for: None,
                };
                ledger.create_engagement(&roster, &new).await.expect("an answer");
                let to = Move {
                    status: None,
                    provider: Reassign::To(provider(order(worker))),
                    expiry: Expiry::Keep,
                };
                ledger.move_engagement(&roster, &name, &to).await.expect("an answer");
                let dirty = ledger.dirty(&roster, 1_000).await.expect("the outbox");
                let mut rows: Vec<_> = dirty.into_iter().map(|dirty| (dirty.provider, dirty.version)).collect();
                if worker % 2 == 1 {
                    rows.reverse();
                }
                ledger.clean(&roster, &rows).await.expect("an answer");
                let ended: Vec<_> = (0..30)
                    .map(|k| EndedTenure {
                        tenure: tenure(order(k)),
                        at: StoreTime::from_micros(1),
                        reason: if k % 2 == 0 { EndReason::Left } else { EndReason::Lapsed },
                        heard_at: None,
                    })
                    .collect();
                ledger.offline_ended(&roster, &ended).await.expect("a batch");
                let back = order(3);
                ledger
                    .go_online(&roster, &provider(back), Some(&tenure(back)))
                    .await
                    .expect("online");
            }
        }));
    }
    for task in tasks {
        task.await.expect("a task");
    }
    assert_eq!(deadlocks(&admin).await, "0");
    let wrong = "SELECT count(*) FROM tenure.providers p WHERE occupancy <> (SELECT count(*) FROM tenure.engagements e \
                 WHERE e.provider = p.provider AND e.status IN ('pending', 'active'))";
    assert_eq!(cell(&admin, wrong).await, "0");
}

/// Heartbeats update no index.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_are_heap_only_updates() {
    // On its own server without other activity: other sessions affect how soon the space of old rows is reused.
    let Some(server) = tenure_testkit::postgres::Server::with(&["autovacuum=off"]) else {
        return;
    };
    let (one, admin) = instances(1, &server.database(), 300, 1).await;
    for round in 1..=40u64 {
        let beats: Vec<_> = (0..300)
            .map(|n| (provider(n), StoreTime::from_micros(round * 1_000)))
            .collect();
        let news = one[0].record_heartbeats(&roster(), &beats).await;
        assert_eq!(news.expect("heartbeats"), 300);
    }
    // A server flushes its statistics when a connection has been idle for ten seconds, or closes.
    one[0].close().await;
    let updates = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'heartbeats'";
    let is_counted = || async { cell(&admin, updates).await == "11700" };
    tenure_testkit::wait::until_async(
        "the statistics are written",
        std::time::Duration::from_secs(60),
        is_counted,
    )
    .await;
    let hot = "SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'heartbeats'";
    let hot: u32 = cell(&admin, hot).await.parse().expect("a number");
    assert!(hot >= 11_115, "{hot} of 11700");
}
