//! What a restart keeps: everything that was acknowledged, however the process ended.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use tenure_core::ledger::{Candidates, SettingsPatch, Status};
use tenure_core::{ErrorKind, Ledger, StoreTime};
use tenure_sqlite::SqliteLedger;
use tenure_testkit::own_test;

use crate::ledger::common::{
    connect, engage, engagement, given, log, manual, numbered, online, open, provider, put, reserve, roster, row, s,
    system,
};

#[tokio::test]
async fn a_restart_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock, ann) = (dir.path().join("ledger.db"), manual(), provider("ann"));
    let ledger = open(&path, &clock);
    let patch = SettingsPatch {
        stale_after: Some(s(5)),
        ..SettingsPatch::default()
    };
    let settings = ledger.set_settings(&roster(), &patch).await.unwrap();
    online(&ledger, &ann, 3).await;
    engage(&ledger, 1, &ann).await;
    let beats = [(ann.clone(), StoreTime::from_micros(77))];
    ledger.record_heartbeats(&roster(), &beats).await.unwrap();
    let drawn = ledger.next_version().await.unwrap();
    let (before, logged) = (row(&ledger, &ann).await, log(&ledger).await);
    let dirty = ledger.dirty(&roster(), 10).await.unwrap();
    let of_one = ledger.engagement(&roster(), &engagement(1)).await.unwrap();
    ledger.close().await;

    let ledger = open(&path, &clock);
    assert_eq!(row(&ledger, &ann).await, before);
    assert_eq!(log(&ledger).await, logged);
    assert_eq!(ledger.dirty(&roster(), 10).await.unwrap(), dirty);
    assert_eq!(ledger.engagement(&roster(), &engagement(1)).await.unwrap(), of_one);
    assert_eq!(ledger.settings(&roster()).await.unwrap(), settings);
    assert!(
        ledger.next_version().await.unwrap() > drawn,
        "no version is given out twice"
    );
    ledger.close().await;
}

#[tokio::test]
async fn time_never_falls_across_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("ledger.db"), manual());
    let ledger = open(&path, &clock);
    clock.advance(s(600));
    put(&ledger, &provider("ann"), 1).await;
    let before = ledger.now().await.unwrap();
    ledger.close().await;
    // The wall clock was stepped back by ten minutes.
    let ledger = open(&path, &manual());
    assert!(ledger.now().await.unwrap() >= before);
    // Another program's statement is not of a time before that either.
    let sql = connect(&path);
    let at: i64 = sql.query_row("SELECT at_us FROM moment", [], |row| row.get(0)).unwrap();
    assert!(StoreTime::from_micros(at.unsigned_abs()) >= before);
    ledger.close().await;
}

#[tokio::test]
async fn calls_after_close_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(&dir.path().join("ledger.db"), &manual());
    put(&ledger, &provider("ann"), 1).await;
    ledger.close().await;
    ledger.close().await;
    let read = ledger.provider(&roster(), &provider("ann")).await;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::Unavailable);
    let written = ledger.deactivate(&roster(), &provider("ann")).await;
    assert_eq!(written.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(ledger.next_version().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(ledger.now().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(matches!(ledger.health(), tenure_core::store::Health::Down { .. }));
}

/// Power fails while the log is being written: what was begun is gone, what was acknowledged is not.
#[tokio::test]
async fn a_torn_log_loses_nothing_but_its_torn_end() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("ledger.db"), manual());
    let ledger = open(&path, &clock);
    for n in 0..50 {
        put(&ledger, &numbered(n), 1).await;
    }
    let wal = dir.path().join("ledger.db-wal");
    let acknowledged = wal.metadata().unwrap().len();
    put(&ledger, &numbered(50), 1).await;
    let whole = wal.metadata().unwrap().len();
    assert!(whole > acknowledged, "{whole}");
    for (name, cut) in [
        ("mid", (acknowledged + whole) / 2),
        ("end", whole - 1),
        ("tail", acknowledged + 1),
    ] {
        let copy = dir.path().join(format!("{name}.db"));
        std::fs::copy(&path, &copy).unwrap();
        let torn = dir.path().join(format!("{name}.db-wal"));
        std::fs::copy(&wal, &torn).unwrap();
        std::fs::OpenOptions::new()
            .write(true)
            .open(&torn)
            .unwrap()
            .set_len(cut)
            .unwrap();
        let survivor = open(&copy, &manual());
        assert_eq!(row(&survivor, &numbered(49)).await.capacity, 1);
        let lost = survivor.provider(&roster(), &numbered(50)).await.unwrap();
        assert_eq!(lost, None, "{name}");
        assert_eq!(
            survivor.stats(&roster(), None).await.unwrap().dirty,
            50,
            "rows and outbox are one"
        );
        put(&survivor, &numbered(51), 1).await;
        survivor.close().await;
    }
    ledger.close().await;
}

/// Not a test of its own: the process that is killed below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the test that kills it"]
async fn child_that_reserves_until_it_is_killed() {
    let path = std::env::var_os("TENURE_TEST_FILE").expect("the file to write to");
    let first: usize = std::env::var("TENURE_TEST_FIRST").unwrap().parse().unwrap();
    let ledger = SqliteLedger::open(path, system()).unwrap();
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let ledger = Arc::clone(&ledger);
            tokio::spawn(async move {
                for n in (first + task..).step_by(16) {
                    let outcome = reserve(&ledger, n, Candidates::ANYONE).await.unwrap();
                    println!("ACK {n} {}", given(outcome).expect("there is room"));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

fn reserve_and_kill(path: &Path, first: usize) -> Vec<(usize, String)> {
    let mut child = own_test(module_path!(), "child_that_reserves_until_it_is_killed")
        .env("TENURE_TEST_FILE", path)
        .env("TENURE_TEST_FIRST", first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut lines = BufReader::new(child.stdout.take().expect("its words")).lines();
    let mut acknowledged = Vec::new();
    let mut take = |line: String| {
        // The harness may put its own words before the first line.
        let Some((_, ack)) = line.split_once("ACK ") else {
            return;
        };
        let (n, name) = ack.split_once(' ').expect("a number and a name");
        acknowledged.push((n.parse().expect("a number"), name.to_owned()));
    };
    for _ in 0..600 {
        take(lines.next().expect("it goes on").expect("a line"));
    }
    let refused = SqliteLedger::open(path, system()).expect_err("it is owned");
    assert_eq!(refused.kind(), ErrorKind::Misconfigured);
    assert!(refused.message().contains(&child.id().to_string()), "{refused}");
    child.kill().expect("it is there");
    // What it had still said before it died counts as well.
    lines.map_while(Result::ok).for_each(take);
    child.wait().expect("it is dead");
    acknowledged
}

/// M10: and what was not acknowledged is there whole or not at all.
#[tokio::test]
async fn a_kill_in_the_middle_of_commits_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let ledger = SqliteLedger::open(&path, system()).unwrap();
    for n in 0..20 {
        online(&ledger, &numbered(n), 100_000).await;
    }
    ledger.close().await;
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        acknowledged.extend(reserve_and_kill(&path, round * 1_000_000));
    }
    let ledger = SqliteLedger::open(&path, system()).unwrap();
    for (n, name) in &acknowledged {
        let row = ledger
            .engagement(&roster(), &engagement(*n))
            .await
            .unwrap()
            .expect("it was acknowledged");
        assert_eq!(
            (row.provider.unwrap().as_str(), row.status),
            (name.as_str(), Status::Pending)
        );
    }
    ledger.close().await;
    let sql = connect(&path);
    let number = |statement: &str| -> i64 { sql.query_row(statement, [], |row| row.get(0)).unwrap() };
    assert!(number("SELECT count(*) FROM engagements") >= i64::try_from(acknowledged.len()).unwrap());
    let apart = "SELECT count(*) FROM providers p WHERE occupancy <> \
                 (SELECT count(*) FROM engagements e WHERE e.provider = p.provider)";
    assert_eq!(number(apart), 0);
    assert_eq!(
        number(
            "SELECT count(*) FROM providers p WHERE NOT EXISTS (SELECT 1 FROM outbox o WHERE o.provider = p.provider AND o.version = p.version)"
        ),
        0
    );
    let ok: String = sql.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(ok, "ok");
}
