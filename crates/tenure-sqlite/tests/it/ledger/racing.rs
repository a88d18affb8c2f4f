//! Tasks that do the same at the same time, on one ledger.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_core::ledger::{Candidates, EndedTenure, Expiry, Move, Reassign};
use tenure_core::membership::EndReason;
use tenure_core::{Ledger, ProviderId, StoreTime};
use tenure_sqlite::SqliteLedger;

use crate::ledger::common::{
    connect, engage, engagement, given, log, numbered, online, reserve, roster, system, tenure,
};

async fn with_providers(dir: &tempfile::TempDir, count: usize, capacity: u32) -> Arc<SqliteLedger> {
    let ledger = SqliteLedger::open(dir.path().join("ledger.db"), system()).expect("a ledger");
    for n in 0..count {
        online(&ledger, &numbered(n), capacity).await;
    }
    ledger
}

/// What does not agree with what it is derived from, or has no version.
const WRONG: &str = "SELECT count(*) FROM providers p WHERE version = 0 OR occupancy <> \
                     (SELECT count(*) FROM engagements e WHERE e.roster = p.roster AND e.provider = p.provider \
                      AND e.status IN ('pending', 'active'))";

fn count(dir: &tempfile::TempDir, statement: &str) -> i64 {
    let sql = connect(&dir.path().join("ledger.db"));
    sql.query_row(statement, [], |row| row.get(0)).expect("a number")
}

/// R2.4: 10,000 calls, 5,000 places.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_reserves_for_five_thousand_places() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = with_providers(&dir, 200, 25).await;
    let begun = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for _ in 0..64 {
        let (ledger, begun) = (Arc::clone(&ledger), Arc::clone(&begun));
        tasks.push(tokio::spawn(async move {
            let mut got: BTreeMap<String, u32> = BTreeMap::new();
            loop {
                let n = begun.fetch_add(1, Ordering::Relaxed);
                if n >= 10_000 {
                    return got;
                }
                let mut names: Vec<ProviderId> = (0..200).map(numbered).collect();
                names.rotate_left(n * 7 % 200);
                let candidates = match n % 2 {
                    0 => Candidates::Among(names),
                    _ => Candidates::ANYONE,
                };
                let outcome = reserve(&ledger, n, candidates).await;
                if let Some(name) = given(outcome.expect("an answer")) {
                    *got.entry(name).or_default() += 1;
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
    ledger.close().await;
    assert_eq!(count(&dir, WRONG), 0);
    assert_eq!(count(&dir, "SELECT count(*) FROM providers WHERE occupancy <> 25"), 0);
    let versions = "SELECT count(*) - count(DISTINCT version) FROM \
                    (SELECT version FROM providers UNION ALL SELECT version FROM engagements)";
    assert_eq!(count(&dir, versions), 0, "one sequence for all rows");
}

/// R2.8, G11: one log row each, however many try.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_tasks_follow_the_same_thousand_ends() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = with_providers(&dir, 1_000, 1).await;
    let mut tasks = Vec::new();
    for turn in 0..5 {
        let ledger = Arc::clone(&ledger);
        tasks.push(tokio::spawn(async move {
            let ended = |n| EndedTenure {
                tenure: tenure(&numbered(n), 7),
                at: StoreTime::from_micros(1),
                reason: if n % 3 == 0 { EndReason::Left } else { EndReason::Lapsed },
                heard_at: None,
            };
            let mut batch: Vec<EndedTenure> = (0..1_000).map(ended).collect();
            batch.rotate_left(turn * 200);
            if turn % 2 == 1 {
                batch.reverse();
            }
            let changed = ledger.offline_ended(&roster(), &batch).await;
            changed.expect("a batch").offline.len()
        }));
    }
    let mut changed = 0;
    for task in tasks {
        changed += task.await.expect("a task");
    }
    assert_eq!(changed, 1_000);
    ledger.close().await;
    let logged = "SELECT count(*) * 10000 + count(DISTINCT provider) FROM provider_log WHERE change = 'offline'";
    assert_eq!(count(&dir, logged), 10_001_000);
    let left = "SELECT count(*) FROM provider_log WHERE change = 'offline' AND reason = 'left'";
    assert_eq!(count(&dir, left), 334);
}

/// Concurrent batches of every kind, in every order, with the same name twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_batches_agree_in_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = with_providers(&dir, 60, 99).await;
    let mut tasks = Vec::new();
    for worker in 0..8usize {
        let ledger = Arc::clone(&ledger);
        tasks.push(tokio::spawn(async move {
            let roster = roster();
            for round in 0..25usize {
                let order = |k: usize| (k * (2 * worker + 1) * 7 + round * 13) % 60;
                let at = |k: usize| StoreTime::from_micros((round * 100 + k) as u64 + 1);
                let beats: Vec<_> = (0..80).map(|k| (numbered(order(k)), at(k))).collect();
                ledger.record_heartbeats(&roster, &beats).await.expect("beats");
                engage(&ledger, round % 6, &numbered(0)).await;
                let to = Move {
                    status: None,
                    provider: Reassign::To(numbered(order(worker))),
                    expiry: Expiry::Keep,
                };
                let moved = ledger.move_engagement(&roster, &engagement(round % 6), &to).await;
                moved.expect("an answer");
                let dirty = ledger.dirty(&roster, 1_000).await.expect("the outbox");
                for dirty in &dirty {
                    assert!(
                        dirty.row.as_ref().is_some_and(|row| row.version == dirty.version),
                        "{dirty:?}"
                    );
                }
                let rows: Vec<_> = dirty.into_iter().map(|dirty| (dirty.provider, dirty.version)).collect();
                ledger.clean(&roster, &rows).await.expect("an answer");
                let ended = |k| EndedTenure {
                    tenure: tenure(&numbered(order(k)), 7),
                    at: at(k),
                    reason: if k % 2 == 0 { EndReason::Left } else { EndReason::Lapsed },
                    heard_at: None,
                };
                let ended: Vec<_> = (0..30).map(ended).collect();
                ledger.offline_ended(&roster, &ended).await.expect("a batch");
                let back = numbered(order(3));
                let online = ledger.go_online(&roster, &back, Some(&tenure(&back, 7))).await;
                online.expect("online");
            }
        }));
    }
    for task in tasks {
        task.await.expect("a task");
    }
    let seen = log(&ledger).await;
    assert!(
        seen.windows(2)
            .all(|pair| pair[0].id < pair[1].id && pair[0].version < pair[1].version)
    );
    ledger.close().await;
    assert_eq!(count(&dir, WRONG), 0);
    let online = "SELECT count(*) FROM providers p WHERE online <> (SELECT sum(change = 'online') - sum(change = 'offline') \
                  FROM provider_log l WHERE l.provider = p.provider)";
    assert_eq!(count(&dir, online), 0, "the log tells who is online");
}

/// M10: places are the cardinality of a set, so what is said twice counts once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_is_taken_and_freed_once_however_often_it_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = with_providers(&dir, 1, 10).await;
    let mut tasks = Vec::new();
    for n in 0..200 {
        let ledger = Arc::clone(&ledger);
        tasks.push(tokio::spawn(async move {
            let outcome = reserve(&ledger, n % 20, Candidates::ANYONE).await;
            given(outcome.expect("an answer")).is_some()
        }));
    }
    for task in tasks {
        task.await.expect("a task");
    }
    let occupancy = async || crate::ledger::common::row(&ledger, &numbered(0)).await.occupancy;
    assert_eq!(occupancy().await, 10);
    for n in (0..20).chain(0..20) {
        let to = Move {
            status: Some(tenure_core::ledger::Status::Ended),
            ..Move::default()
        };
        // Half of them never got a place, and are not known.
        let _ = ledger.move_engagement(&roster(), &engagement(n), &to).await;
    }
    assert_eq!(occupancy().await, 0);
    ledger.close().await;
}

/// M11: heartbeats write their narrow table alone.
#[tokio::test]
async fn heartbeats_touch_neither_rows_nor_indexes_of_providers() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = with_providers(&dir, 300, 1).await;
    let beats = |round: u64| -> Vec<_> {
        (0..300)
            .map(|n| (numbered(n), StoreTime::from_micros(round * 1_000)))
            .collect()
    };
    let sql = connect(&dir.path().join("ledger.db"));
    let state = || -> (i64, String) {
        let pages = sql.query_row("PRAGMA page_count", [], |row| row.get(0)).expect("pages");
        let all = "SELECT group_concat(provider || version || occupancy || coalesce(online_tenure, '')) FROM providers";
        (pages, sql.query_row(all, [], |row| row.get(0)).expect("rows"))
    };
    ledger.record_heartbeats(&roster(), &beats(1)).await.unwrap();
    let before = state();
    for round in 2..=40 {
        let news = ledger.record_heartbeats(&roster(), &beats(round)).await;
        assert_eq!(news.expect("heartbeats"), 300);
    }
    assert_eq!(state(), before, "and the file does not grow");
    let indexes =
        "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'heartbeats' AND sql IS NOT NULL";
    assert_eq!(count(&dir, indexes), 0);
    ledger.close().await;
}
