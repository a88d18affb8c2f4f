//! Failures in the middle of a transaction. They need the writer's own connection, so they live here.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tenure_core::clock::{ManualClock, SystemClock};
use tenure_core::error::Outcome;
use tenure_core::ledger::{ProviderSpec, Reason};
use tenure_core::store::Health;
use tenure_core::{Error, ErrorKind, Ledger, ProviderId, Result, RosterName};

use super::SqliteLedger;
use super::step::Step;
use crate::error::Cause;

struct World {
    ledger: Arc<SqliteLedger>,
    clock: Arc<ManualClock>,
    roster: RosterName,
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_763_676_800_000_000, 1));
        let ledger = SqliteLedger::open(dir.path().join("ledger.db"), Arc::clone(&clock) as _).unwrap();
        Self {
            ledger,
            clock,
            roster: RosterName::new("care").unwrap(),
            dir,
        }
    }

    async fn put(&self, name: &str) -> Result<u64> {
        let (name, spec) = (ProviderId::new(name)?, ProviderSpec::default());
        let put = self.ledger.put_provider(&self.roster, &name, &spec).await?;
        Ok(put.provider.version.0)
    }

    /// Many, which need room.
    async fn many(&self, prefix: &str, count: usize) -> Result<u64> {
        let mut last = 0;
        for n in 0..count {
            last = self.put(&format!("{prefix}{n:0>150}")).await?;
        }
        Ok(last)
    }

    async fn known(&self) -> u64 {
        let stats = self.ledger.stats(&self.roster, None).await.unwrap();
        assert_eq!(stats.offline, stats.dirty, "rows and outbox are one");
        stats.offline
    }

    /// Runs SQL on the writer's connection, inside a step.
    async fn on_writer(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<()> + Send + 'static) {
        let work = move |step: &mut Step<'_>| Ok(Ok(work(step.sql)?));
        self.ledger.step(&self.roster, work).await.unwrap();
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T>) -> (ErrorKind, Outcome, Error) {
    let error = result.unwrap_err();
    (error.kind(), error.outcome(), error)
}

#[tokio::test]
async fn a_full_disk_changes_nothing_and_reads_go_on() {
    let world = World::new();
    world.put("ann").await.unwrap();
    world
        .on_writer(|sql| {
            let pages: i64 = sql.pragma_query_value(None, "page_count", |row| row.get(0))?;
            sql.pragma_update_and_check(None, "max_page_count", pages + 1, |_| Ok(()))
        })
        .await;
    let (kind, outcome, error) = refused(world.many("a", 400).await);
    assert_eq!(
        (kind, outcome),
        (ErrorKind::Unavailable, Outcome::Unchanged),
        "{error:?}"
    );
    assert!(error.message().contains("full"), "{error}");
    let known = world.known().await;
    assert!((1..400).contains(&known));
    // Once there is room again, service continues.
    world
        .on_writer(|sql| sql.pragma_update_and_check(None, "max_page_count", 1_000_000, |_| Ok(())))
        .await;
    world.many("b", 20).await.unwrap();
    assert_eq!(world.known().await, known + 20);
    assert_eq!(world.ledger.health(), Health::Up);
    world.ledger.close().await;
}

#[tokio::test]
async fn a_file_that_can_only_be_read_changes_nothing() {
    let world = World::new();
    world.put("ann").await.unwrap();
    world.on_writer(|sql| sql.pragma_update(None, "query_only", true)).await;
    let (kind, outcome, error) = refused(world.put("bob").await);
    assert_eq!(
        (kind, outcome),
        (ErrorKind::Unavailable, Outcome::Unchanged),
        "{error:?}"
    );
    assert!(error.message().contains("cannot be written"), "{error}");
    assert_eq!(world.known().await, 1);
    assert!(matches!(world.ledger.health(), Health::Down { .. }));
    // A file that is opened again can be written again.
    world.ledger.close().await;
    let ledger = SqliteLedger::open(world.dir.path().join("ledger.db"), Arc::clone(&world.clock) as _).unwrap();
    let world = World { ledger, ..world };
    world.put("bob").await.unwrap();
    world.ledger.close().await;
}

#[tokio::test]
async fn a_failed_step_takes_nobody_with_it_and_leaves_no_word() {
    let world = World::new();
    let first = world.put("ann").await.unwrap();
    let (ledger, roster) = (&world.ledger, &world.roster);
    let panic = ledger.step::<()>(roster, |step| {
        step.because(Reason::Asked)?;
        step.sql.execute_batch("UPDATE providers SET capacity = 77")?;
        panic!("on purpose");
    });
    let broken = ledger.step::<()>(roster, |step| {
        step.because(Reason::Asked)?;
        step.sql.execute_batch("UPDATE providers SET capacity = 78")?;
        Ok(Ok(step.sql.execute_batch("INSERT INTO nowhere VALUES (1)")?))
    });
    let (panic, broken, put) = tokio::join!(panic, broken, world.put("bob"));
    assert_eq!(panic.unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(broken.unwrap_err().outcome(), Outcome::Unchanged);
    assert_eq!(put.unwrap(), first + 1, "no version was used up");
    let ann = ProviderId::new("ann").unwrap();
    let row = ledger.provider(roster, &ann).await.unwrap().unwrap();
    assert_eq!((row.capacity, row.version.0), (1, first));
    let said = ledger.executor.read(|sql| {
        Ok(
            sql.query_row("SELECT at_us IS NOT NULL OR follows FROM steps", [], |row| {
                row.get::<_, bool>(0)
            })?,
        )
    });
    assert!(!said.await.unwrap());
    ledger.close().await;
}

#[tokio::test]
async fn a_lost_connection_is_opened_again() {
    let world = World::new();
    world.put("ann").await.unwrap();
    let (ledger, roster) = (&world.ledger, &world.roster);
    let lost = ledger.step::<()>(roster, |_| {
        let failure = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC);
        Err(rusqlite::Error::SqliteFailure(failure, None).into())
    });
    let (kind, outcome, _) = refused(lost.await);
    assert_eq!((kind, outcome), (ErrorKind::Unavailable, Outcome::Unknown));
    assert!(matches!(ledger.health(), Health::Down { .. }));
    world.put("bob").await.unwrap();
    assert_eq!(ledger.health(), Health::Up);
    assert_eq!(world.known().await, 2);
    ledger.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_fails_whole_is_taken_back_whole() {
    let world = World::new();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let (inside, is_inside) = tokio::sync::oneshot::channel();
    let (ledger, roster) = (Arc::clone(&world.ledger), world.roster.clone());
    let blocking = tokio::spawn(async move {
        let work = move |_: &mut Step<'_>| {
            let _ = inside.send(());
            let _ = may_go.recv();
            Ok(Ok(()))
        };
        ledger.step(&roster, work).await
    });
    is_inside.await.unwrap();
    // These meet in the next transaction, and the second destroys it, as a full disk does.
    let destroying = world.ledger.step::<()>(&world.roster, |step| {
        step.sql.execute_batch("ROLLBACK")?;
        Err(Cause::Strange("on purpose".to_owned()))
    });
    let (put, destroyed, ()) = tokio::join!(biased; world.put("ann"), destroying, async {
        go.send(()).unwrap();
    });
    assert_eq!(put.unwrap_err().outcome(), Outcome::Unchanged);
    destroyed.unwrap_err();
    blocking.await.unwrap().unwrap();
    assert_eq!(world.known().await, 0);
    assert_eq!(world.put("ann").await.unwrap(), 1);
    world.ledger.close().await;
}

/// G8, G9: another program holds the write lock for three seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_lock_of_another_program_only_delays_calls() {
    let world = World::new();
    world.put("ann").await.unwrap();
    let other = Connection::open(world.dir.path().join("ledger.db")).unwrap();
    other
        .execute_batch("BEGIN IMMEDIATE; UPDATE providers SET capacity = 5")
        .unwrap();
    let clock = SystemClock::shared();
    let started = clock.mono();
    let name = ProviderId::new("ann").unwrap();
    let (put, read, ()) = tokio::join!(
        world.put("bob"),
        // Reads do not wait at all, and see what was committed.
        world.ledger.provider(&world.roster, &name),
        async {
            clock.sleep(Duration::from_secs(3)).await;
            world.clock.advance(Duration::from_secs(3));
            other.execute_batch("COMMIT").unwrap();
        }
    );
    assert!(clock.mono().since(started) >= Duration::from_secs(3));
    assert_eq!(put.unwrap(), 3, "a version above that of the other's edit");
    assert_eq!(read.unwrap().unwrap().capacity, 1);
    assert_eq!(world.known().await, 2);
    world.ledger.close().await;
}
