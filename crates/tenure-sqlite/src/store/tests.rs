//! Faults of a real file, which need the connection that writes.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use rusqlite::{Connection, ffi};
use tenure_core::clock::{ManualClock, SystemClock};
use tenure_core::error::Outcome;
use tenure_core::event::{EventId, EventLog, EventQuery};
use tenure_core::membership::{Beat, BeatReply, Join, Labels, MembershipStore, Revision};
use tenure_core::registry::{ClaimMode, RegistryStore};
use tenure_core::store::{Backend, Call, Health, Store, StoreOptions};
use tenure_core::sweep::{Sweep, SweepSteps};
use tenure_core::{Group, Key, MemberId, RegistryName, Result, TenureId};

use super::SqliteStore;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

type Work = Box<dyn FnOnce(&Connection) -> rusqlite::Result<()> + Send>;

struct World {
    store: Arc<SqliteStore>,
    clock: Arc<ManualClock>,
    before_commit: Sender<Work>,
    group: Group,
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_763_676_800_000_000, 1));
        let (before_commit, before) = channel();
        let path = dir.path().join("tenure.db");
        let prepare = |disk: &mut crate::disk::FileDisk| disk.before = Some(before);
        let store = SqliteStore::open_prepared(&path, StoreOptions::default(), Arc::clone(&clock) as _, prepare);
        // A new file grants nothing for one max ttl.
        clock.advance(StoreOptions::default().max_ttl);
        Self {
            store: store.unwrap(),
            clock,
            before_commit,
            group: Group::new("g").unwrap(),
            dir,
        }
    }

    /// Runs this on the connection that writes, in the next commit.
    fn before_commit(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<()> + Send + 'static) {
        self.before_commit.send(Box::new(work)).unwrap();
    }

    /// Leaves the file room for so many more pages.
    fn leave_room(&self, pages: i64) {
        self.before_commit(move |sql| {
            let now: i64 = sql.pragma_query_value(None, "page_count", |row| row.get(0))?;
            sql.pragma_update_and_check(None, "max_page_count", now + pages, |_| Ok(()))
        });
    }

    async fn join(&self, name: &str) -> Result<TenureId> {
        let join = Join {
            member: MemberId::new(name)?,
            ttl: s(10),
            labels: Labels::default(),
        };
        Ok(self.store.join(&self.group, &join, Call::default()).await?.tenure)
    }

    async fn beat(&self, tenure: &TenureId) -> Result<bool> {
        let beats = [Beat {
            tenure: tenure.clone(),
            ttl: None,
            revision: Revision::NONE,
            seen: Revision::NONE,
        }];
        let reply = self.store.beat(&self.group, &beats).await?.replies[0];
        Ok(matches!(reply, BeatReply::Renewed { .. }))
    }

    async fn claim(&self, tenure: &TenureId, keys: &[Key]) -> Result<usize> {
        let devices = RegistryName::new("devices")?;
        let store = &self.store;
        let claimed = store.claim(&self.group, &devices, tenure, keys, ClaimMode::Take, Call::default());
        Ok(claimed.await?.outcomes.len())
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
async fn full_disk_changes_nothing_and_beats_continue() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    let last = world.last_event().await;
    world.leave_room(2);
    let error = world.claim(&a, &keys(200)).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unchanged, "{error:?}");
    assert!(error.message().contains("full"), "{error}");
    assert!(world.beat(&a).await.unwrap());
    let seen = world.store.member(&world.group, a.member()).await.unwrap().unwrap();
    assert_eq!((seen.holdings.claims, seen.alive), (0, true));
    let status = world.store.status(&world.group).await.unwrap();
    assert_eq!((world.last_event().await, status.last_event), (last, last));
    // The first write after room was made succeeds, and service continues.
    world.leave_room(1_000_000);
    assert_eq!(world.claim(&a, &keys(200)).await.unwrap(), 200);
    assert_eq!(world.store.health(), Health::Up);
    world.join("b").await.unwrap();
    assert!(world.last_event().await > last);
    world.store.close().await;
}

#[tokio::test]
async fn failed_write_ends_all_service() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    world.before_commit(|_| {
        let failure = ffi::Error::new(ffi::SQLITE_IOERR_FSYNC);
        Err(rusqlite::Error::SqliteFailure(failure, None))
    });
    let lost = world.claim(&a, &keys(3)).await.unwrap_err();
    assert_eq!(lost.outcome(), Outcome::Unknown, "{lost:?}");
    world.store.until_broken().await;
    assert!(matches!(world.store.health(), Health::Down { .. }));
    assert!(world.beat(&a).await.is_err());
    assert!(world.store.member(&world.group, a.member()).await.is_err());
    assert!(world.join("b").await.is_err());
    // Another process may read the file again; what was acknowledged is there.
    let World {
        store,
        clock,
        group,
        dir,
        ..
    } = world;
    drop(store);
    let path = dir.path().join("tenure.db");
    tenure_testkit::wait::until("the file is let go", s(30), || crate::owner(&path).is_none());
    let store = SqliteStore::open(&path, StoreOptions::default(), clock as _).unwrap();
    assert!(store.member(&group, a.member()).await.unwrap().unwrap().alive);
    store.close().await;
}

#[tokio::test]
async fn probe_sees_that_the_file_takes_no_writes() {
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

#[tokio::test]
async fn lost_settling_ends_no_wait() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1_763_676_800_000_000, 1));
    let path = dir.path().join("tenure.db");
    let store = SqliteStore::open(&path, StoreOptions::default(), clock as _).unwrap();
    let waits = async |name: &str| {
        let status = store.tick(&Group::new(name).unwrap()).await.unwrap();
        status.unsettled.is_some()
    };
    assert!(waits("first").await);
    let other = Connection::open(&path).unwrap();
    let broken = "CREATE TRIGGER broken BEFORE UPDATE ON clock WHEN new.wait_why IS NULL
         BEGIN SELECT RAISE(ABORT, 'on purpose'); END";
    other.execute_batch(broken).unwrap();
    store.settle(None, None, Call::default()).await.unwrap_err();
    assert!(waits("second").await);
    other.execute_batch("DROP TRIGGER broken").unwrap();
    store.settle(None, None, Call::default()).await.unwrap();
    assert!(!waits("third").await);
    assert!(!waits("first").await);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_lock_of_another_program_delays_calls_but_fails_none() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    let other = Connection::open(world.dir.path().join("tenure.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let clock = SystemClock::shared();
    let started = clock.mono();
    let keys = keys(3);
    let (claimed, joined, ()) = tokio::join!(world.claim(&a, &keys), world.join("b"), async {
        assert!(world.beat(&a).await.unwrap());
        clock.sleep(s(3)).await;
        other.execute_batch("ROLLBACK").unwrap();
    });
    assert!(clock.mono().since(started) >= s(3));
    assert_eq!(claimed.unwrap(), 3);
    assert_eq!(joined.unwrap().member().as_str(), "b");
    world.store.close().await;
}
