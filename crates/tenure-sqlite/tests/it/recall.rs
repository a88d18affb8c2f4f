//! Whether a store is whole or may have forgotten who holds a lease: what a start withholds, and for how long.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::ManualClock;
use tenure_core::lease::{AcquireOutcome, LeaseStore};
use tenure_core::membership::{Beat, EndBy, MembershipStore, Revision};
use tenure_core::settling::GapCause;
use tenure_core::store::{Backend, Call, Store, StoreOptions};
use tenure_core::sweep::{Sweep, SweepSteps};
use tenure_core::{ErrorKind, Group, TenureId, Term};
use tenure_sqlite::SqliteStore;
use tenure_testkit::own_test;

use crate::common::{
    acquire, beat, claim, end, events, granted, group, join, joining, lease, manual, member, open, owner, pass, s,
    serve, settled, system,
};

/// Opens a file as it is, also one that is not there.
fn open_as_it_is(path: &Path, clock: &Arc<ManualClock>, max_ttl: Duration) -> Arc<SqliteStore> {
    let options = StoreOptions {
        max_ttl,
        ..StoreOptions::default()
    };
    SqliteStore::open(path, options, Arc::clone(clock) as _).expect("the store opens")
}

/// How long a free lease is withheld from a new member.
async fn withheld(store: &SqliteStore, name: &str) -> Duration {
    let tenure = join(store, name, s(5)).await;
    match acquire(store, &tenure, &format!("free-{name}")).await {
        AcquireOutcome::Granted { .. } => Duration::ZERO,
        AcquireOutcome::Unsettled { retry_in, .. } => retry_in,
        other => panic!("{other:?}"),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

#[tokio::test]
async fn a_new_file_grants_nothing_for_one_max_ttl() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open_as_it_is(&path, &clock, s(60));
    assert_eq!(withheld(&store, "a").await, s(60));
    let told = events(&store).await;
    assert!(
        told.iter().any(|event| event.reason.as_deref() == Some("new")),
        "{told:?}"
    );
    clock.advance(s(20));
    // Also a group that is made within the wait.
    let other = Group::new("other").unwrap();
    let joined = store.join(&other, &joining("a", s(5)), Call::default()).await.unwrap();
    let free = [lease("free")];
    let asked = store.acquire(&other, &joined.tenure, &free, Call::default());
    let waits = AcquireOutcome::Unsettled {
        retry_in: s(40),
        cause: GapCause::New,
    };
    assert_eq!(asked.await.unwrap().outcomes, [waits]);
    clock.advance(s(40));
    let late = Group::new("late").unwrap();
    let joined = store.join(&late, &joining("a", s(5)), Call::default()).await.unwrap();
    let asked = store.acquire(&late, &joined.tenure, &free, Call::default());
    assert!(matches!(
        asked.await.unwrap().outcomes[..],
        [AcquireOutcome::Granted { .. }]
    ));
    store.close().await;
}

#[tokio::test]
async fn a_restart_neither_shortens_the_wait_nor_begins_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let mut left = 60;
    for round in 0..3 {
        let store = open_as_it_is(&path, &clock, s(60));
        assert_eq!(withheld(&store, &format!("m{round}")).await, s(left), "round {round}");
        store.close().await;
        clock.advance(s(20));
        left -= 20;
    }
    let store = open_as_it_is(&path, &clock, s(60));
    assert_eq!(withheld(&store, "last").await, Duration::ZERO);
    store.close().await;
}

#[tokio::test]
async fn settling_outlasts_a_restart() {
    for alone in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (path, clock, only) = (dir.path().join("tenure.db"), manual(), group());
        let store = open_as_it_is(&path, &clock, s(60));
        if alone {
            assert_eq!(withheld(&store, "a").await, s(60));
        }
        // All existing and all future groups, also before the first one exists.
        let report = store.settle(alone.then_some(&only), None, Call::default()).await;
        assert_eq!(report.unwrap().settled > 0, alone);
        store.close().await;
        let store = open_as_it_is(&path, &clock, s(60));
        assert_eq!(withheld(&store, "b").await, Duration::ZERO, "alone: {alone}");
        let other = Group::new("other").unwrap();
        let waits = store.tick(&other).await.unwrap().unsettled.is_some();
        assert_eq!(waits, alone, "the other groups wait on");
        store.close().await;
    }
}

#[tokio::test]
async fn the_wait_is_as_long_as_the_longest_ttl_that_was_served() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    join(&store, "a", s(100)).await;
    store.close().await;
    std::fs::remove_file(&path).unwrap();
    let store = open_as_it_is(&path, &clock, s(10));
    assert_eq!(withheld(&store, "b").await, s(100));
    store.close().await;
}

#[tokio::test]
async fn a_whole_file_grants_free_leases_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let a = join(&store, "a", s(30)).await;
    granted(&store, &a, "held").await;
    store.close().await;
    // However long it was away.
    clock.advance(s(1_000));
    let store = open(&path, &clock);
    assert_eq!(withheld(&store, "b").await, Duration::ZERO);
    let b = join(&store, "b", s(30)).await;
    let held = AcquireOutcome::Held {
        by: a.clone(),
        free_in: s(30),
    };
    assert_eq!(acquire(&store, &b, "held").await, held);
    // A silence of the running store withholds as ever.
    serve(&store).await;
    clock.advance(s(5));
    assert!(matches!(
        acquire(&store, &b, "more").await,
        AcquireOutcome::Unsettled { .. }
    ));
    store.close().await;
}

#[tokio::test]
async fn a_grace_that_runs_outlasts_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let a = join(&store, "a", s(30)).await;
    serve(&store).await;
    clock.advance(s(10));
    let before = store.tick(&group()).await.unwrap().unsettled.unwrap();
    assert_eq!(before.cause, GapCause::Silent);
    store.close().await;
    clock.advance(s(10));
    let store = open(&path, &clock);
    let wait = AcquireOutcome::Unsettled {
        retry_in: s(20),
        cause: GapCause::Silent,
    };
    assert_eq!(acquire(&store, &a, "free").await, wait);
    assert_eq!(store.status(&group()).await.unwrap().unsettled, Some(before));
    store.close().await;
}

/// A file that was closed, and what was done to it then.
type Damage = fn(&Path, &Path);

#[tokio::test]
async fn a_file_that_may_have_forgotten_waits() {
    let cases: [(&str, Damage, bool); 8] = [
        ("nothing happened", |_, _| {}, false),
        ("the file is gone", |path, _| std::fs::remove_file(path).unwrap(), true),
        ("the file is empty", |path, _| std::fs::write(path, "").unwrap(), true),
        (
            "the mark is gone",
            |path, _| std::fs::remove_file(beside(path, ".mark")).unwrap(),
            true,
        ),
        (
            "the mark is damaged",
            |path, _| std::fs::write(beside(path, ".mark"), "?").unwrap(),
            true,
        ),
        (
            "a copy of it was moved over it",
            |path, _| {
                std::fs::copy(path, beside(path, ".new")).unwrap();
                std::fs::rename(beside(path, ".new"), path).unwrap();
            },
            true,
        ),
        (
            "an older copy was moved over it",
            |path, old| std::fs::rename(old, path).unwrap(),
            true,
        ),
        (
            "an older copy was written over it",
            |path, old| {
                std::fs::copy(old, path).unwrap();
            },
            true,
        ),
    ];
    for (what, damage, waits) in cases {
        let dir = tempfile::tempdir().unwrap();
        let (path, old, clock) = (dir.path().join("tenure.db"), dir.path().join("old.db"), manual());
        let store = open(&path, &clock);
        join(&store, "a", s(5)).await;
        store.close().await;
        std::fs::copy(&path, &old).unwrap();
        let store = open(&path, &clock);
        let b = join(&store, "b", s(30)).await;
        granted(&store, &b, "poll").await;
        store.close().await;
        damage(&path, &old);
        let store = open_as_it_is(&path, &clock, s(60));
        let expected = if waits { s(60) } else { Duration::ZERO };
        assert_eq!(withheld(&store, "c").await, expected, "{what}");
        store.close().await;
        // It is a life of its own by now: a restart adds no wait.
        clock.advance(s(60));
        let store = open_as_it_is(&path, &clock, s(60));
        assert_eq!(withheld(&store, "d").await, Duration::ZERO, "{what}");
        store.close().await;
    }
}

/// Not a test of its own: the process that is killed below. It writes, and then waits for its end.
#[tokio::test]
#[ignore = "started by the tests that kill it"]
async fn child_that_holds_a_lease_until_it_is_killed() {
    let path = std::env::var_os("TENURE_TEST_FILE").expect("the file to write to");
    let store = SqliteStore::open(path, StoreOptions::default(), system()).unwrap();
    let tenure = join(&store, "holder", s(100)).await;
    for n in 0..20 {
        claim(&store, &tenure, &format!("dev-{n}")).await.unwrap();
    }
    granted(&store, &tenure, "held").await;
    println!("HELD by {tenure}");
    let _ = std::io::stdin().read(&mut [0]);
}

/// A file whose owner was killed: the tenure that holds the lease `held`.
fn killed(path: &Path) -> TenureId {
    let mut child = own_test(module_path!(), "child_that_holds_a_lease_until_it_is_killed")
        .env("TENURE_TEST_FILE", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child runs");
    let lines = BufReader::new(child.stdout.take().expect("the child runs")).lines();
    let held = lines
        .map_while(Result::ok)
        .find_map(|line| Some(line.split_once("HELD by ")?.1.to_owned()));
    child.kill().expect("the child runs");
    child.wait().expect("the child runs");
    held.expect("the child holds a lease").parse().expect("the child runs")
}

#[tokio::test]
async fn a_kill_makes_no_file_forget() {
    let dir = tempfile::tempdir().expect("the child runs");
    let path = dir.path().join("tenure.db");
    settled(&path);
    for round in 0..3 {
        let holder = killed(&path);
        let store = SqliteStore::open(&path, StoreOptions::default(), system()).unwrap();
        let name = format!("new-{round}");
        assert_eq!(withheld(&store, &name).await, Duration::ZERO, "round {round}");
        let new = join(&store, &name, s(30)).await;
        let held = acquire(&store, &new, "held").await;
        assert!(
            matches!(&held, AcquireOutcome::Held { by, .. } if *by == holder),
            "{held:?}"
        );
        // So that the next process can have the lease.
        end(&store, &holder, EndBy::Leave).await;
        store.close().await;
    }
}

#[tokio::test]
async fn a_log_that_was_cut_is_missed() {
    type Cut = fn(&Path);
    let cuts: [(&str, Cut); 3] = [
        ("its end is gone", |log| {
            let len = log.metadata().unwrap().len();
            std::fs::OpenOptions::new()
                .write(true)
                .open(log)
                .unwrap()
                .set_len(len / 2)
                .unwrap();
        }),
        ("it is gone", |log| std::fs::remove_file(log).unwrap()),
        ("its head is garbled", |log| {
            let mut bytes = std::fs::read(log).unwrap();
            bytes[..8].fill(0xa5);
            std::fs::write(log, bytes).unwrap();
        }),
    ];
    for (what, cut) in cuts {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenure.db");
        settled(&path);
        killed(&path);
        cut(&beside(&path, "-wal"));
        let store = SqliteStore::open(&path, StoreOptions::default(), system()).unwrap();
        assert!(withheld(&store, "new").await > s(100), "{what}");
        store.close().await;
    }
}

#[tokio::test]
async fn a_log_beside_another_file_is_never_replayed() {
    type Mix = fn(&Path, &Path);
    let mixes: [(&str, Mix); 3] = [
        ("an older copy was written over the file", |path, old| {
            std::fs::copy(old, path).unwrap();
        }),
        ("an older copy was moved over the file", |path, old| {
            std::fs::rename(old, path).unwrap()
        }),
        ("the log is that of another run", |path, old| {
            std::fs::copy(beside(old, "-wal"), beside(path, "-wal")).unwrap();
        }),
    ];
    for (what, mix) in mixes {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("tenure.db"), dir.path().join("old.db"));
        settled(&path);
        let holder = killed(&path);
        std::fs::copy(beside(&path, "-wal"), beside(&old, "-wal")).unwrap();
        std::fs::copy(&path, &old).unwrap();
        // A run that ends cleanly, and another one after it.
        let store = SqliteStore::open(&path, StoreOptions::default(), system()).unwrap();
        end(&store, &holder, EndBy::Leave).await;
        store.close().await;
        killed(&path);
        mix(&path, &old);
        let before = (
            std::fs::read(&path).unwrap(),
            std::fs::read(beside(&path, "-wal")).unwrap(),
        );
        let error = SqliteStore::open(&path, StoreOptions::default(), system()).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{what}: {error:?}");
        assert!(
            error.message().contains("tenure.db-wal is not that of"),
            "{what}: {error}"
        );
        let after = (
            std::fs::read(&path).unwrap(),
            std::fs::read(beside(&path, "-wal")).unwrap(),
        );
        assert_eq!(before, after, "{what}: nothing was changed");
    }
}

#[tokio::test]
async fn an_emptied_file_keeps_its_log_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    settled(&path);
    killed(&path);
    let log = std::fs::read(beside(&path, "-wal")).unwrap();
    std::fs::write(&path, "").unwrap();
    let store = SqliteStore::open(&path, StoreOptions::default(), system()).unwrap();
    assert!(withheld(&store, "new").await > s(100));
    assert_eq!(std::fs::read(beside(&path, "-wal.set-aside")).unwrap(), log);
    assert_eq!(owner(&store, "dev-1").await, None);
    store.close().await;
}

/// A beat of a tenure that this file never gave out.
async fn ghost(store: &SqliteStore) {
    let now = store.now().await.expect("an answer");
    let term = Term::new(now.micros() - 200_000).expect("an answer");
    let beats = [Beat::of(TenureId::new(member("ghost"), term))];
    store.beat(&group(), &beats).await.expect("an answer");
}

#[tokio::test]
async fn a_proof_of_loss_is_believed_once_and_soon_after_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    let a = join(&store, "a", s(30)).await;
    pass(&store, &clock, s(1)).await;
    ghost(&store).await;
    let unsettled = store.status(&group()).await.unwrap().unsettled.unwrap();
    assert_eq!(unsettled.cause, GapCause::DataLoss);
    assert_eq!(
        acquire(&store, &a, "free").await,
        AcquireOutcome::Unsettled {
            retry_in: s(120),
            cause: GapCause::DataLoss
        }
    );
    // Every group of the file may have forgotten.
    let other = Group::new("other").unwrap();
    assert!(store.tick(&other).await.unwrap().unsettled.is_some());
    for _ in 0..9 {
        pass(&store, &clock, s(10)).await;
        beat(&store, &a).await;
        ghost(&store).await;
    }
    assert_eq!(store.status(&group()).await.unwrap().unsettled, Some(unsettled));
    pass(&store, &clock, s(20)).await;
    beat(&store, &a).await;
    pass(&store, &clock, s(10)).await;
    granted(&store, &a, "free").await;
    store.close().await;
}

#[tokio::test]
async fn a_forged_beat_keeps_no_member_alive() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    pass(&store, &clock, s(120)).await;
    let (a, b) = (join(&store, "a", s(3)).await, join(&store, "b", s(100)).await);
    for _ in 0..6 {
        pass(&store, &clock, Duration::from_millis(800)).await;
        ghost(&store).await;
        let forged = [Beat {
            revision: Revision(store.now().await.unwrap().micros() - 200_000),
            ..Beat::of(b.clone())
        }];
        store.beat(&group(), &forged).await.unwrap();
    }
    assert!(store.status(&group()).await.unwrap().unsettled.is_none());
    assert_eq!(
        store.end_lapsed(&group(), 10, Call::default()).await.unwrap().ended,
        [a]
    );
    granted(&store, &b, "free").await;
    store.close().await;
}
