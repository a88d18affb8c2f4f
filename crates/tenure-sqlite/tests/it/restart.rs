//! What a restart keeps: everything that was acknowledged, however the process ended.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;

use tenure_core::event::EventKind;
use tenure_core::membership::{Beat, BeatReply, EndBy, EndReason, MembershipStore};
use tenure_core::store::{Backend, Call, PageRequest, Store, StoreOptions};
use tenure_core::sweep::{SweepRequest, SweepSteps, run_pass};
use tenure_core::{ErrorKind, TenureId};
use tenure_sqlite::SqliteStore;
use tenure_testkit::own_test;

use crate::common::{START, beat, claim, events, group, join, joining, manual, member, open, owner, pass, s, system};

#[tokio::test]
async fn a_restart_keeps_tenures_claims_terms_and_events() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let (a, b) = (join(&store, "a", s(10)).await, join(&store, "b", s(10)).await);
    claim(&store, &a, "dev-1").await.unwrap();
    claim(&store, &b, "dev-2").await.unwrap();
    store.end(&group(), &b, EndBy::Leave, Call::default()).await.unwrap();
    let (before, renewed) = (events(&store).await, beat(&store, &a).await);
    assert!(matches!(renewed, BeatReply::Renewed { revision, .. } if !revision.is_none()));
    store.close().await;

    let store = open(&path, &clock);
    assert_eq!(events(&store).await, before);
    assert_eq!(owner(&store, "dev-1").await, Some((a.clone(), true)));
    assert_eq!(owner(&store, "dev-2").await, Some((b.clone(), false)));
    let seen = store.member(&group(), &member("a")).await.unwrap().unwrap();
    assert_eq!(
        (seen.tenure, seen.ttl, seen.alive, seen.holdings.claims),
        (a.clone(), s(10), true, 1)
    );
    assert_eq!(seen.labels.as_map()["zone"], "a");
    assert_eq!(beat(&store, &a).await, renewed);
    assert_eq!(beat(&store, &b).await, BeatReply::Ended(EndReason::Left));
    assert!(join(&store, "a", s(10)).await.term() > b.term());
    store.close().await;
}

#[tokio::test]
async fn everyone_gets_one_full_ttl_after_a_restart_however_short() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let a = join(&store, "a", s(10)).await;
    // The last beat is in memory alone: by the file, the tenure lapses 1 s after the restart.
    pass(&store, &clock, s(9)).await;
    assert_eq!(
        beat(&store, &a).await,
        BeatReply::Renewed {
            expires_in: s(10),
            revision: tenure_core::membership::Revision::NONE
        }
    );
    store.close().await;

    let store = open(&path, &clock);
    let seen = store.member(&group(), &member("a")).await.unwrap().unwrap();
    assert_eq!((seen.alive, seen.expires_in), (true, s(10)));
    clock.advance(s(1));
    let status = store.tick(&group()).await.unwrap();
    assert_eq!((status.resumed_at, status.unsettled), (status.as_of, None));
    for _ in 0..9 {
        pass(&store, &clock, s(1)).await;
        assert!(
            store
                .end_lapsed(&group(), 10, Call::default())
                .await
                .unwrap()
                .ended
                .is_empty()
        );
    }
    pass(&store, &clock, s(1)).await;
    assert_eq!(
        store.end_lapsed(&group(), 10, Call::default()).await.unwrap().ended,
        [a]
    );
    store.close().await;
}

#[tokio::test]
async fn a_ttl_changed_by_a_beat_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let tenure = join(&store, "a", s(2)).await;
    let beats = [Beat {
        tenure: tenure.clone(),
        ttl: Some(s(60)),
        revision: tenure_core::membership::Revision::NONE,
        seen: tenure_core::membership::Revision::NONE,
    }];
    store.beat(&group(), &beats).await.unwrap();
    store.close().await;
    let store = open(&path, &clock);
    assert_eq!(
        beat(&store, &tenure).await,
        BeatReply::Renewed {
            expires_in: s(60),
            revision: tenure_core::membership::Revision::NONE
        }
    );
    store.close().await;
}

#[tokio::test]
async fn the_janitor_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let a = join(&store, "a", s(10)).await;
    claim(&store, &a, "dev-1").await.unwrap();
    store.end(&group(), &a, EndBy::Expel, Call::default()).await.unwrap();
    store.close().await;
    let store = open(&path, &clock);
    assert_eq!(store.tick(&group()).await.unwrap().releasing, 1);
    clock.advance(s(1));
    let report = run_pass(&*store, &group(), &SweepRequest::default(), "p", Call::default())
        .await
        .unwrap();
    assert_eq!(report.evicted_total(), 1);
    assert_eq!(events(&store).await.last().unwrap().kind, EventKind::Evicted);
    assert_eq!(store.tick(&group()).await.unwrap().releasing, 0);
    store.close().await;
}

#[tokio::test]
async fn a_brake_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    for n in 0..12 {
        let tenure = join(&store, &format!("m{n}"), s(2)).await;
        claim(&store, &tenure, &format!("dev-{n}")).await.unwrap();
    }
    pass(&store, &clock, std::time::Duration::from_millis(2_400)).await;
    assert_eq!(
        store
            .end_lapsed(&group(), 100, Call::default())
            .await
            .unwrap()
            .ended
            .len(),
        12
    );
    store.close().await;

    let store = open(&path, &clock);
    clock.advance(s(1));
    let report = run_pass(&*store, &group(), &SweepRequest::default(), "p", Call::default())
        .await
        .unwrap();
    assert_eq!(
        (report.evicted_total(), report.braked.map(|brake| brake.lapsed)),
        (0, Some(12))
    );
    store.close().await;
}

#[tokio::test]
async fn store_time_never_falls_across_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let a = join(&store, "a", s(100)).await;
    clock.advance(s(50));
    let before = store.now().await.unwrap();
    store.close().await;
    clock.set_wall_micros(START - 3_600_000_000);
    let store = open(&path, &clock);
    assert!(store.now().await.unwrap() >= before);
    assert_eq!(
        beat(&store, &a).await,
        BeatReply::Renewed {
            expires_in: s(100),
            revision: tenure_core::membership::Revision::NONE
        }
    );
    let findings = store.examine().await;
    let offset = findings.iter().find(|finding| finding.check == "clock").unwrap();
    assert!(offset.detail.contains("ahead of the wall"), "{offset:?}");
    store.close().await;
}

#[tokio::test]
async fn the_high_water_mark_is_written_while_only_beats_come() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let a = join(&store, "a", s(100)).await;
    let reader = rusqlite::Connection::open(&path).unwrap();
    let read = || -> u64 {
        let mark: i64 = reader
            .query_row("SELECT high_water_us FROM clock", [], |row| row.get(0))
            .unwrap();
        u64::try_from(mark).unwrap()
    };
    for _ in 0..60 {
        clock.advance(s(1));
        beat(&store, &a).await;
    }
    let now = store.now().await.unwrap();
    tenure_testkit::wait::until("the mark is written", s(40), || read() + 1_000_000 >= now.micros());
    store.close().await;
}

#[tokio::test]
async fn calls_after_close_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let clock = manual();
    let store = open(&dir.path().join("tenure.db"), &clock);
    let a = join(&store, "a", s(10)).await;
    store.close().await;
    store.close().await;
    let page = PageRequest::default();
    assert_eq!(
        claim(&store, &a, "dev-1").await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    assert_eq!(
        store.members(&group(), &page).await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    assert_eq!(store.tick(&group()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(store.now().await.unwrap_err().kind(), ErrorKind::Unavailable);
}

/// Not a test of its own: the process that is killed below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the test that kills it"]
async fn child_that_writes_until_it_is_killed() {
    let path = std::env::var_os("TENURE_TEST_FILE").expect("the file to write to");
    let store = SqliteStore::open(path, StoreOptions::default(), system()).unwrap();
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for n in 0u64.. {
                    let join = joining(&format!("m{task}-{n}"), s(100));
                    let joined = store.join(&group(), &join, Call::default()).await.unwrap();
                    let dev = format!("dev-{task}-{n}");
                    claim(&store, &joined.tenure, &dev).await.unwrap();
                    println!("ACK {} {dev}", joined.tenure);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_kill_in_the_middle_of_commits_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    let mut acknowledged: Vec<(TenureId, String)> = Vec::new();
    for round in 1..=3 {
        let mut child = own_test(module_path!(), "child_that_writes_until_it_is_killed")
            .env("TENURE_TEST_FILE", &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut take = |line: String| {
            // The harness may put its own words before the first line.
            let Some((_, ack)) = line.split_once("ACK ") else {
                return false;
            };
            let (tenure, dev) = ack.split_once(' ').unwrap();
            acknowledged.push((tenure.parse().unwrap(), dev.to_owned()));
            true
        };
        let mut seen = 0;
        while seen < 300 * round {
            seen += usize::from(take(lines.next().unwrap().unwrap()));
        }
        let owner = tenure_sqlite::owner(&path).unwrap();
        assert_eq!(owner.pid, child.id());
        let refused = SqliteStore::open(&path, StoreOptions::default(), system()).unwrap_err();
        assert!(refused.message().contains(&child.id().to_string()), "{refused}");
        child.kill().unwrap();
        // What it had still said before it died counts as well.
        lines.map_while(Result::ok).for_each(|line| {
            take(line);
        });
        child.wait().unwrap();
    }
    assert!(acknowledged.len() >= 1_800);
    let store = SqliteStore::open(&path, StoreOptions::default(), system()).unwrap();
    let mut current = std::collections::HashMap::new();
    for (tenure, dev) in acknowledged {
        // Later rounds join the same members again; the last one counts, and its claims are there.
        current.insert(tenure.member().clone(), (tenure, dev));
    }
    for (tenure, dev) in current.into_values() {
        let (owner, alive) = owner(&store, &dev).await.unwrap();
        assert!(
            owner.term() >= tenure.term() && owner.member() == tenure.member(),
            "{dev}: {owner}, not {tenure}"
        );
        assert!(alive || owner == tenure, "{dev} of {owner}");
    }
    let ok: String = rusqlite::Connection::open(&path)
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(ok, "ok");
    store.close().await;
}
