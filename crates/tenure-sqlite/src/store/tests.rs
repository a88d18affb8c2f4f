//! Failures in the middle of a transaction, and races between beats, readers and the writer. They need the writer's own
//! connection, so they live here.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tenure_core::clock::{ManualClock, SystemClock};
use tenure_core::error::Outcome;
use tenure_core::event::{EventId, EventLog, EventQuery};
use tenure_core::membership::{Beat, BeatReply, EndBy, EndReason, Join, Labels, MembershipStore};
use tenure_core::registry::{ClaimMode, RegistryStore};
use tenure_core::store::{Backend, Call, Health, Store, StoreOptions};
use tenure_core::sweep::{Sweep, SweepSteps};
use tenure_core::{Error, ErrorKind, Group, Key, MemberId, RegistryName, Result, TenureId};

use super::SqliteStore;
use crate::error::Cause;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

struct World {
    store: Arc<SqliteStore>,
    clock: Arc<ManualClock>,
    group: Group,
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_763_676_800_000_000, 1));
        let path = dir.path().join("tenure.db");
        let store = SqliteStore::open(path, StoreOptions::default(), Arc::clone(&clock) as _).unwrap();
        // A new file grants nothing for one max ttl.
        clock.advance(StoreOptions::default().max_ttl);
        Self {
            store,
            clock,
            group: Group::new("g").unwrap(),
            dir,
        }
    }

    async fn join(&self, name: &str) -> Result<TenureId> {
        let join = Join {
            member: MemberId::new(name)?,
            ttl: s(10),
            labels: Labels::default(),
        };
        Ok(self.store.join(&self.group, &join, Call::default()).await?.tenure)
    }

    async fn beat(&self, tenure: &TenureId) -> Result<BeatReply> {
        let beats = [Beat {
            tenure: tenure.clone(),
            ttl: None,
            revision: tenure_core::membership::Revision::NONE,
        }];
        Ok(self.store.beat(&self.group, &beats).await?.replies[0])
    }

    async fn claim(&self, tenure: &TenureId, keys: &[Key]) -> Result<usize> {
        let devices = RegistryName::new("devices")?;
        let store = &self.store;
        let claimed = store.claim(&self.group, &devices, tenure, keys, ClaimMode::Take, Call::default());
        Ok(claimed.await?.outcomes.len())
    }

    /// Runs SQL on the writer's connection, inside a step.
    async fn on_writer(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<()> + Send + 'static) {
        let work = move |step: &mut crate::step::Step<'_>| Ok(Ok(work(step.sql)?));
        self.store.step(&self.group, Call::default(), work).await.unwrap();
    }

    async fn last_event(&self) -> EventId {
        let query = EventQuery {
            after: None,
            limit: 1000,
            ..EventQuery::default()
        };
        self.store.events(&self.group, &query).await.unwrap().last
    }
}

fn keys(count: usize) -> Vec<Key> {
    (0..count).map(|n| Key::new(format!("{n:0>150}")).unwrap()).collect()
}

#[tokio::test]
async fn a_full_disk_changes_nothing_and_beats_go_on() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    let last = world.last_event().await;
    world
        .on_writer(|sql| {
            let pages: i64 = sql.pragma_query_value(None, "page_count", |row| row.get(0))?;
            sql.pragma_update_and_check(None, "max_page_count", pages + 2, |_| Ok(()))
        })
        .await;
    let error = world.claim(&a, &keys(200)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Unchanged),
        "{error:?}"
    );
    assert!(error.message().contains("full"), "{error}");
    assert!(matches!(world.beat(&a).await.unwrap(), BeatReply::Renewed { .. }));
    let seen = world.store.member(&world.group, a.member()).await.unwrap().unwrap();
    assert_eq!((seen.holdings.claims, seen.alive), (0, true));
    assert_eq!(world.last_event().await, last);
    // With room again, everything goes on where it was.
    world
        .on_writer(|sql| sql.pragma_update_and_check(None, "max_page_count", 1_000_000, |_| Ok(())))
        .await;
    assert_eq!(world.claim(&a, &keys(200)).await.unwrap(), 200);
    assert_eq!(world.store.health(), Health::Up);
    assert_eq!(world.last_event().await, last);
    world.store.close().await;
}

#[tokio::test]
async fn a_failed_step_takes_nobody_with_it() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    let (store, group) = (&world.store, &world.group);
    let panic = store.step::<()>(group, Call::default(), |step| {
        step.meta.members = 77;
        panic!("on purpose");
    });
    let broken = store.step::<()>(group, Call::default(), |step| {
        step.meta.seq = 1 << 50;
        Ok(Ok(step.sql.execute_batch("INSERT INTO nowhere VALUES (1)")?))
    });
    let refusal = store.step::<()>(group, Call::default(), |_| Ok(Err(Error::too_late())));
    let (panic, broken, refusal, join) = tokio::join!(panic, broken, refusal, world.join("b"));
    assert_eq!(panic.unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(broken.unwrap_err().outcome(), Outcome::Unchanged);
    assert_eq!(refusal.unwrap_err().kind(), ErrorKind::TooLate);
    assert!(join.unwrap().term() < tenure_core::Term::new(1 << 51).unwrap());
    assert_eq!(store.tick(group).await.unwrap().members, 2);
    assert!(matches!(world.beat(&a).await.unwrap(), BeatReply::Renewed { .. }));
    store.close().await;
}

#[tokio::test]
async fn a_step_that_fails_after_an_end_gives_the_tenure_back() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    let (store, group, tenure) = (&world.store, &world.group, a.clone());
    let failed = store.step::<()>(group, Call::default(), move |step| {
        let (entry, reason) = step.take(&tenure, |_| Some(EndReason::Expelled)).unwrap();
        step.end_taken(&tenure, &entry, reason)?;
        Err(Cause::Strange("on purpose".to_owned()))
    });
    failed.await.unwrap_err();
    assert!(matches!(world.beat(&a).await.unwrap(), BeatReply::Renewed { .. }));
    assert_eq!(store.status(group).await.unwrap().members, 1);
    store.close().await;
}

#[tokio::test]
async fn a_gap_that_could_not_be_recorded_is_seen_again() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    world.clock.advance(s(60));
    let (store, group) = (&world.store, &world.group);
    let failed = store.step::<()>(group, Call::default(), |_| Err(Cause::Strange("on purpose".to_owned())));
    failed.await.unwrap_err();
    let status = store.tick(group).await.unwrap();
    assert_eq!(status.resumed_at, status.as_of);
    assert!(status.unsettled.is_some());
    assert!(matches!(world.beat(&a).await.unwrap(), BeatReply::Renewed { .. }));
    store.close().await;
}

#[tokio::test]
async fn settling_that_was_not_committed_ends_no_wait() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1_763_676_800_000_000, 1));
    let path = dir.path().join("tenure.db");
    let store = SqliteStore::open(path, StoreOptions::default(), clock as _).unwrap();
    let group = Group::new("g").unwrap();
    let on_writer = async |statements: &'static str| {
        let work = move |step: &mut crate::step::Step<'_>| Ok(Ok(step.sql.execute_batch(statements)?));
        store.step(&group, Call::default(), work).await.unwrap();
    };
    let waits = || store.life().wait(store.clock().now()).is_some();
    on_writer(
        "CREATE TEMP TRIGGER broken BEFORE UPDATE ON main.clock WHEN new.wait_why IS NULL
         BEGIN SELECT RAISE(ABORT, 'on purpose'); END",
    )
    .await;
    store.settle(None, None, Call::default()).await.unwrap_err();
    assert!(waits());
    on_writer("DROP TRIGGER IF EXISTS temp.broken").await;
    store.settle(None, None, Call::default()).await.unwrap();
    assert!(!waits());
    store.close().await;
}

#[tokio::test]
async fn a_group_whose_first_step_failed_does_not_exist() {
    let world = World::new();
    let group = Group::new("other").unwrap();
    let failed = world.store.step::<()>(&group, Call::default(), |_| {
        Err(Cause::Strange("on purpose".to_owned()))
    });
    failed.await.unwrap_err();
    assert!(world.store.groups().await.unwrap().is_empty());
    world.join("a").await.unwrap();
    assert_eq!(world.store.groups().await.unwrap(), std::slice::from_ref(&world.group));
    world.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beat_that_meets_an_uncommitted_end_waits_for_it() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    let (inside, is_inside) = tokio::sync::oneshot::channel();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let (store, group, tenure) = (Arc::clone(&world.store), world.group.clone(), a.clone());
    let ending = tokio::spawn(async move {
        let work = move |step: &mut crate::step::Step<'_>| {
            let (entry, reason) = step
                .take(&tenure, |_| Some(EndReason::Expelled))
                .expect("it is current");
            step.end_taken(&tenure, &entry, reason)?;
            let _ = inside.send(());
            // The transaction stays open until the test has looked around.
            let _ = may_go.recv();
            Ok(Ok(()))
        };
        store.step(&group, Call::default(), work).await
    });
    is_inside.await.unwrap();
    // A reader still sees what is committed, and a beat does not answer ahead of the commit.
    assert!(
        world
            .store
            .member(&world.group, a.member())
            .await
            .unwrap()
            .unwrap()
            .alive
    );
    let mut beating = Box::pin(world.beat(&a));
    let early = futures_poll(&mut beating).await;
    assert!(early.is_none(), "{early:?}");
    go.send(()).unwrap();
    ending.await.unwrap().unwrap();
    assert_eq!(beating.await.unwrap(), BeatReply::Ended(EndReason::Expelled));
    assert_eq!(world.store.member(&world.group, a.member()).await.unwrap(), None);
    world.store.close().await;
}

/// Polls once.
async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| match std::pin::Pin::new(&mut *future).poll(context) {
        std::task::Poll::Ready(done) => std::task::Poll::Ready(Some(done)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn a_beat_after_the_step_was_opened_saves_the_tenure() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    // Long enough that the deadline alone keeps the tenure, and not the ttl after the last gap.
    for _ in 0..14 {
        world.clock.advance(s(1));
        world.beat(&a).await.unwrap();
    }
    for _ in 0..9 {
        world.clock.advance(s(1));
        world.store.tick(&world.group).await.unwrap();
    }
    let (store, clock, group, tenure) = (
        Arc::clone(&world.store),
        Arc::clone(&world.clock),
        world.group.clone(),
        a.clone(),
    );
    let live = store.live(&group).unwrap().unwrap();
    let beats = [Beat {
        tenure: a.clone(),
        ttl: None,
        revision: tenure_core::membership::Revision::NONE,
    }];
    let work = move |step: &mut crate::step::Step<'_>| {
        // Between the opening of this step and its judgement time passes, and a beat comes.
        clock.advance(Duration::from_millis(100));
        let (_, replies) = live.beat(store.clock(), store.life(), &beats);
        assert!(replies[0].is_some());
        Ok(Ok(step.end_if_past(&tenure)?))
    };
    let ended = world.store.step(&world.group, Call::default(), work).await.unwrap();
    assert!(!ended);
    assert!(matches!(world.beat(&a).await.unwrap(), BeatReply::Renewed { .. }));
    world.store.close().await;
}

#[tokio::test]
async fn what_was_given_up_before_it_ran_never_happens() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let (inside, is_inside) = tokio::sync::oneshot::channel();
    let (store, group) = (Arc::clone(&world.store), world.group.clone());
    let blocking = tokio::spawn(async move {
        let work = move |_: &mut crate::step::Step<'_>| {
            let _ = inside.send(());
            let _ = may_go.recv();
            Ok(Ok(()))
        };
        store.step(&group, Call::default(), work).await
    });
    is_inside.await.unwrap();
    let mut leaving = world.store.end(&world.group, &a, EndBy::Leave, Call::default());
    assert!(futures_poll(&mut leaving).await.is_none());
    drop(leaving);
    go.send(()).unwrap();
    blocking.await.unwrap().unwrap();
    // What is answered after it was queued after it.
    world.join("b").await.unwrap();
    assert!(matches!(world.beat(&a).await.unwrap(), BeatReply::Renewed { .. }));
    assert_eq!(world.store.tick(&world.group).await.unwrap().members, 2);
    world.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_fails_whole_is_taken_back_whole() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    let last = world.last_event().await;
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let (inside, is_inside) = tokio::sync::oneshot::channel();
    let (store, group) = (Arc::clone(&world.store), world.group.clone());
    let blocking = tokio::spawn(async move {
        let work = move |_: &mut crate::step::Step<'_>| {
            let _ = inside.send(());
            let _ = may_go.recv();
            Ok(Ok(()))
        };
        store.step(&group, Call::default(), work).await
    });
    is_inside.await.unwrap();
    // All of these meet in the next transaction, and the last one destroys it, as a full disk does.
    let (store, group) = (&world.store, &world.group);
    let mut joining = Box::pin(world.join("b"));
    let mut leaving = store.end(group, &a, EndBy::Leave, Call::default());
    let mut destroying = Box::pin(store.step::<()>(group, Call::default(), |step| {
        step.sql.execute_batch("ROLLBACK")?;
        Err(Cause::Strange("on purpose".to_owned()))
    }));
    assert!(futures_poll(&mut joining).await.is_none());
    assert!(futures_poll(&mut leaving).await.is_none());
    assert!(futures_poll(&mut destroying).await.is_none());
    go.send(()).unwrap();
    blocking.await.unwrap().unwrap();
    let (joined, left, destroyed) = tokio::join!(joining, leaving, destroying);
    assert_eq!(joined.unwrap_err().outcome(), Outcome::Unchanged);
    assert_eq!(left.unwrap_err().outcome(), Outcome::Unchanged);
    destroyed.unwrap_err();
    let status = store.tick(group).await.unwrap();
    assert_eq!((status.members, status.last_event), (1, last));
    let b = MemberId::new("b").unwrap();
    assert_eq!(store.member(group, &b).await.unwrap(), None);
    // Nothing is pending any more: memory alone serves this beat, while the writer is stopped.
    assert!(store.live(group).unwrap().unwrap().lock().pending.is_empty());
    assert!(matches!(world.beat(&a).await.unwrap(), BeatReply::Renewed { .. }));
    assert_eq!(world.join("b").await.unwrap().member(), &b);
    assert!(world.last_event().await > last);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_sees_that_the_file_takes_no_writes() {
    let world = World::new();
    world.store.probe(s(1)).await.unwrap();
    world.store.tick(&world.group).await.unwrap();
    let other = Connection::open(world.dir.path().join("tenure.db")).unwrap();
    let full = "CREATE TRIGGER full BEFORE UPDATE ON clock BEGIN SELECT RAISE(ROLLBACK, 'full'); END";
    other.execute_batch(full).unwrap();
    // A tick of a quiet group writes nothing.
    world.store.tick(&world.group).await.unwrap();
    world.store.probe(s(1)).await.unwrap_err();
    assert!(matches!(world.store.health(), Health::Down { .. }));
    other.execute_batch("DROP TRIGGER full").unwrap();
    world.store.probe(s(1)).await.unwrap();
    assert_eq!(world.store.health(), Health::Up);
    world.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_program_with_the_write_lock_delays_calls_but_fails_none() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    let other = Connection::open(world.dir.path().join("tenure.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let clock = SystemClock::shared();
    let started = clock.mono();
    let keys = keys(3);
    let (claimed, joined, read, ()) = tokio::join!(
        world.claim(&a, &keys),
        world.join("b"),
        // Reads and beats do not wait at all.
        world.store.member(&world.group, a.member()),
        async {
            assert!(matches!(world.beat(&a).await.unwrap(), BeatReply::Renewed { .. }));
            clock.sleep(s(3)).await;
            other.execute_batch("ROLLBACK").unwrap();
        }
    );
    assert!(clock.mono().since(started) >= s(3));
    assert_eq!(claimed.unwrap(), 3);
    assert_eq!(joined.unwrap().member().as_str(), "b");
    assert!(read.unwrap().unwrap().alive);
    world.store.close().await;
}

#[tokio::test]
async fn a_lost_connection_is_opened_again_and_deadlines_are_kept() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    for _ in 0..9 {
        world.clock.advance(s(1));
        assert!(matches!(world.beat(&a).await.unwrap(), BeatReply::Renewed { .. }));
    }
    let (store, group) = (&world.store, &world.group);
    let lost = store.step::<()>(group, Call::default(), |_| {
        let failure = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC);
        Err(rusqlite::Error::SqliteFailure(failure, None).into())
    });
    let error = lost.await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Unknown)
    );
    assert!(matches!(store.health(), Health::Down { .. }));
    assert_eq!(world.claim(&a, &keys(3)).await.unwrap(), 3);
    assert_eq!(store.health(), Health::Up);
    // The file knows the deadline of the join alone; memory kept the one of the last beat.
    world.clock.advance(s(1));
    store.tick(group).await.unwrap();
    assert!(
        store
            .end_lapsed(group, 10, Call::default())
            .await
            .unwrap()
            .ended
            .is_empty()
    );
    let seen = store.member(group, a.member()).await.unwrap().unwrap();
    assert_eq!((seen.alive, seen.expires_in), (true, s(9)));
    store.close().await;
}

#[tokio::test]
async fn a_file_that_fell_back_while_it_was_open_has_forgotten() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    let (store, group) = (&world.store, &world.group);
    // An older state: what is missing of it here is the count alone.
    let other = Connection::open(world.dir.path().join("tenure.db")).unwrap();
    other.execute("UPDATE clock SET commits = commits - 1", []).unwrap();
    let lost = store.step::<()>(group, Call::default(), |_| {
        let failure = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        Err(rusqlite::Error::SqliteFailure(failure, None).into())
    });
    lost.await.unwrap_err();
    world.join("b").await.unwrap();
    let status = store.tick(group).await.unwrap();
    let unsettled = status.unsettled.unwrap();
    assert_eq!(unsettled.cause, tenure_core::settling::GapCause::DataLoss);
    assert_eq!(unsettled.until, status.as_of + StoreOptions::default().max_ttl);
    assert_eq!(status.resumed_at, status.as_of);
    assert!(matches!(world.beat(&a).await.unwrap(), BeatReply::Renewed { .. }));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_events_of_a_group_that_comes_later_ends_with_its_first() {
    let world = World::new();
    let (store, group) = (Arc::clone(&world.store), world.group.clone());
    let waiting = tokio::spawn(async move { store.wait_for_events(&group, EventId(0), s(3600)).await });
    world.join("a").await.unwrap();
    waiting.await.unwrap().unwrap();
    world.store.close().await;
}
