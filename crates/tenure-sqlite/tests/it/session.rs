//! Sessions on a real file: what a restart keeps, and that nothing is left behind.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;

use serde_json::json;
use tenure_core::Clock;
use tenure_core::event::EventKind;
use tenure_core::id::Alias;
use tenure_core::membership::{EndBy, MembershipStore};
use tenure_core::session::{
    Attach, AttachOutcome, DeleteOutcome, How, MAX_CONNECTIONS, MAX_FIELDS, MAX_VALUE, SessionSettings, SessionState,
    SessionStats, SessionStore,
};
use tenure_core::store::{Backend, Call, StoreOptions};
use tenure_core::sweep::{SweepRequest, SweepSteps};
use tenure_sqlite::SqliteStore;
use tenure_testkit::own_test;

use crate::common::{
    self, attached, beat, detach, end, events, group, join, manual, member, open, pass, plain, reap, rows, s, seen,
    session, settle, sweep, system,
};

fn alias(name: &str) -> Alias {
    Alias::new(name).expect("a name")
}

#[tokio::test]
async fn a_restart_keeps_sessions_with_all_they_have() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let front = join(&store, "front", s(100)).await;
    let full = Attach {
        alias: Some(alias("ann")),
        data: [("room".to_owned(), json!({"b": [1, 2.5, "é\n"], "a": null}))].into(),
        grace: Some(s(7)),
        ..plain("chat", "c1")
    };
    attached(&store, &front, &full).await;
    attached(&store, &front, &plain("chat", "c2")).await;
    attached(&store, &front, &plain("left", "c1")).await;
    detach(&store, &front, "left", "c1").await;
    let (before, status) = (seen(&store, "chat").await, store.tick(&group()).await.unwrap());
    let told = events(&store).await;
    store.close().await;

    let store = open(&path, &clock);
    assert_eq!(seen(&store, "chat").await, before);
    assert_eq!(store.session_by_alias(&group(), &alias("ann")).await.unwrap(), before);
    assert_eq!(events(&store).await, told);
    let front_seen = store.member(&group(), &member("front")).await.unwrap().unwrap();
    assert_eq!(front_seen.holdings.connections, 2);
    let again = store.tick(&group()).await.unwrap();
    assert_eq!((status.sessions, status.disconnected), (2, 1));
    assert_eq!(
        (again.sessions, again.disconnected, again.next_reap),
        (status.sessions, status.disconnected, status.next_reap)
    );
    let (how, _) = attached(&store, &front, &plain("left", "c9")).await;
    assert_eq!(how, How::Resumed);
    let resumed = store.tick(&group()).await.unwrap();
    assert_eq!(
        (resumed.sessions, resumed.disconnected, resumed.next_reap),
        (2, 0, None)
    );
    store.close().await;
}

/// A restart is a gap: no member could resume a session in it, however short it was.
#[tokio::test]
async fn after_a_restart_everyone_has_the_whole_grace_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let front = join(&store, "front", s(100)).await;
    let short = Attach {
        grace: Some(s(20)),
        ..plain("chat", "c")
    };
    attached(&store, &front, &short).await;
    detach(&store, &front, "chat", "c").await;
    pass(&store, &clock, s(15)).await;
    let before = seen(&store, "chat").await.unwrap();
    assert_eq!(before.reap_in, Some(s(5)));
    store.close().await;

    clock.advance(s(1));
    // A shorter grace in the settings does not touch what was granted.
    let sessions = SessionSettings {
        grace: s(1),
        ..SessionSettings::default()
    };
    let options = StoreOptions {
        sessions,
        ..StoreOptions::default()
    };
    let store = SqliteStore::open(&path, options, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    let unnoticed = seen(&store, "chat").await.unwrap();
    assert_eq!(
        (unnoticed.state, unnoticed.reap_in),
        (SessionState::Disconnected, Some(s(20)))
    );
    assert_eq!(unnoticed.disconnected_at, before.disconnected_at);
    pass(&store, &clock, s(20) - std::time::Duration::from_millis(1)).await;
    assert!(reap(&store, "early").await.reaped.is_empty());
    assert_eq!(
        seen(&store, "chat").await.map(|seen| seen.state),
        Some(SessionState::Disconnected)
    );
    pass(&store, &clock, std::time::Duration::from_millis(1)).await;
    let reaped = reap(&store, "due").await.reaped;
    assert_eq!(reaped.len(), 1);
    assert_eq!((&reaped[0].session, reaped[0].epoch), (&session("chat"), before.epoch));
    store.close().await;
}

#[tokio::test]
async fn the_janitor_goes_on_with_connections_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let (dead, alive) = (join(&store, "dead", s(10)).await, join(&store, "alive", s(10)).await);
    for name in ["both", "alone"] {
        attached(&store, &dead, &plain(name, "c1")).await;
    }
    attached(&store, &alive, &plain("both", "c2")).await;
    end(&store, &dead, EndBy::Expel).await;
    store.close().await;

    let store = open(&path, &clock);
    assert_eq!(store.tick(&group()).await.unwrap().releasing, 1);
    pass(&store, &clock, s(1)).await;
    let report = sweep(&store, SweepRequest::default(), "p").await;
    assert_eq!(report.connections_total(), 2);
    assert_eq!(
        seen(&store, "both").await.map(|seen| seen.state),
        Some(SessionState::Active)
    );
    assert_eq!(seen(&store, "alone").await.and_then(|seen| seen.reap_in), Some(s(60)));
    let told = events(&store).await;
    let evicted = told.iter().find(|event| event.kind == EventKind::Evicted).unwrap();
    assert_eq!(
        (evicted.connections, evicted.counts.len(), evicted.keys.len()),
        (2, 0, 0)
    );
    assert_eq!(store.tick(&group()).await.unwrap().releasing, 0);
    store.close().await;
}

/// The janitor has nothing to do for a tenure whose connections have all moved elsewhere.
#[tokio::test]
async fn moved_connection_leaves_the_work_list_of_its_old_holder() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let (dead, alive) = (join(&store, "dead", s(10)).await, join(&store, "alive", s(10)).await);
    attached(&store, &dead, &plain("chat", "c1")).await;
    end(&store, &dead, EndBy::Expel).await;
    let before = store.tick(&group()).await.unwrap();
    assert!(before.releasing == 1 && before.next_release.is_some());
    attached(&store, &alive, &plain("chat", "c1")).await;
    let after = store.tick(&group()).await.unwrap();
    assert_eq!((after.releasing, after.next_release), (0, None));
    store.close().await;
}

#[tokio::test]
async fn nothing_is_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let rest = join(&store, "rest", s(100)).await;
    let before = rows(&path);
    let (dying, leaving) = (join(&store, "dying", s(3)).await, join(&store, "leaving", s(10)).await);
    for n in 0..30 {
        let asked = Attach {
            alias: Some(alias(&format!("a{n}"))),
            data: [("n".to_owned(), json!(n))].into(),
            grace: Some(s(2)),
            ..plain(&format!("s{n:02}"), "c1")
        };
        attached(&store, if n % 2 == 0 { &dying } else { &leaving }, &asked).await;
    }
    for n in 0..6 {
        attached(&store, &rest, &plain(&format!("s{n:02}"), "c2")).await;
    }
    // Another alias frees the first one.
    let renamed = Attach {
        alias: Some(alias("other")),
        ..plain("s00", "c2")
    };
    attached(&store, &rest, &renamed).await;
    assert!(rows(&path)["sessions"] == 30 && rows(&path)["connections"] == 36);
    for n in 0..6 {
        detach(&store, &rest, &format!("s{n:02}"), "c2").await;
    }
    end(&store, &leaving, EndBy::Leave).await;
    pass(&store, &clock, s(4)).await;
    let whole = async |pass: &str| sweep(&store, SweepRequest::default(), pass).await;
    // A lapsed member is released shortly after it was ended.
    let first = whole("one").await;
    pass(&store, &clock, s(1)).await;
    let second = whole("two").await;
    assert_eq!(first.connections_total() + second.connections_total(), 30);
    let deleted = store.delete_session(&group(), &session("s01"), Call::default()).await;
    assert!(matches!(deleted.unwrap(), DeleteOutcome::Deleted { .. }));
    pass(&store, &clock, s(2)).await;
    whole("three").await;
    let stats = store.session_stats(&group()).await.unwrap();
    assert_eq!(stats, SessionStats::default());
    // Records of the ended are kept for a while.
    for _ in 0..5 {
        pass(&store, &clock, s(50)).await;
        beat(&store, &rest).await;
    }
    whole("four").await;
    assert_eq!(rows(&path), before);
    let told = events(&store).await;
    let count = |kind: EventKind| told.iter().filter(|event| event.kind == kind).count();
    assert_eq!(
        (count(EventKind::SessionReaped), count(EventKind::SessionDeleted)),
        (29, 1)
    );
    assert_eq!(count(EventKind::SessionDisconnected), 30);
    store.close().await;
}

#[tokio::test]
async fn the_largest_session_comes_back_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let front = join(&store, "front", s(100)).await;
    let value = json!("x".repeat(MAX_VALUE - 2));
    let large = Attach {
        data: (0..MAX_FIELDS).map(|n| (format!("field {n}"), value.clone())).collect(),
        ..plain("chat", "c000")
    };
    let all: Vec<_> = (1..MAX_CONNECTIONS)
        .map(|n| plain("chat", &format!("c{n:03}")))
        .collect();
    attached(&store, &front, &large).await;
    store.attach(&group(), &front, &all, Call::default()).await.unwrap();
    let more = common::attach(&store, &front, &plain("chat", "one-more")).await;
    assert!(matches!(more, AttachOutcome::Full { .. }), "{more:?}");
    store.close().await;
    let store = open(&path, &clock);
    let seen = seen(&store, "chat").await.unwrap();
    assert_eq!((seen.connections, &seen.data), (MAX_CONNECTIONS as u64, &large.data));
    settle(&store, &clock, &[&front]).await;
    assert!(common::reconcile(&store, 10).await.is_empty());
    store.close().await;
}

/// Not a test of its own: the process that is killed below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the test that kills it"]
async fn child_that_attaches_until_it_is_killed() {
    let path = std::env::var_os("TENURE_TEST_FILE").expect("the file to write to");
    let store = SqliteStore::open(path, StoreOptions::default(), system()).unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let tenure = join(&store, &format!("m{task}"), s(100)).await;
                for n in 0u64.. {
                    let name = format!("s{task}-{n}");
                    let (_, made) = attached(&store, &tenure, &plain(&name, "c")).await;
                    println!("ACK {name} {} on", made.epoch);
                    if n % 2 == 0 {
                        detach(&store, &tenure, &name, "c").await;
                        println!("ACK {name} {} off", made.epoch);
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_kill_loses_no_session_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    let mut child = own_test(module_path!(), "child_that_attaches_until_it_is_killed")
        .env("TENURE_TEST_FILE", &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = std::collections::BTreeMap::new();
    let mut take = |line: String| {
        // The harness may put its own words before the first line.
        if let Some((_, ack)) = line.split_once("ACK ") {
            let words: Vec<&str> = ack.split(' ').collect();
            acknowledged.insert(
                words[0].to_owned(),
                (words[1].parse::<u64>().unwrap(), words[2] == "off"),
            );
        }
        acknowledged.len()
    };
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while take(lines.next().unwrap().unwrap()) < 400 {}
    let refused = SqliteStore::open(&path, StoreOptions::default(), system()).unwrap_err();
    assert!(refused.message().contains(&child.id().to_string()), "{refused}");
    child.kill().unwrap();
    for line in lines.map_while(Result::ok) {
        take(line);
    }
    child.wait().unwrap();
    let store = SqliteStore::open(&path, StoreOptions::default(), system()).unwrap();
    for (name, (epoch, off)) in &acknowledged {
        let seen = seen(&store, name).await.expect("a session");
        assert_eq!(seen.epoch.get(), *epoch, "{name}");
        // It may have been detached without our having heard of it.
        assert!(!off || seen.state == SessionState::Disconnected, "{name}: {seen:?}");
    }
    assert!(common::reconcile(&store, 200).await.is_empty());
    store.close().await;
}
