//! Leases and revisions where a transaction fails, or is not committed yet. They need the writer's own connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::clock::ManualClock;
use tenure_core::lease::{AcquireOutcome, LeaseStore, Token};
use tenure_core::membership::{Beat, BeatReply, EndBy, Join, Labels, MembershipStore, Revision};
use tenure_core::store::{Backend, Call, PageRequest, StoreOptions};
use tenure_core::{Group, LeaseName, MemberId, TenureId};

use crate::error::Cause;
use crate::step::Step;
use crate::store::SqliteStore;

crate::sql::statements! { "lease.sql":
    ONE = "one",
}

struct World {
    store: Arc<SqliteStore>,
    group: Group,
    dir: tempfile::TempDir,
}

fn poll() -> LeaseName {
    LeaseName::new("poll").unwrap()
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_763_676_800_000_000, 1));
        let waits = Arc::clone(&clock);
        let store = SqliteStore::open(dir.path().join("tenure.db"), StoreOptions::default(), clock).unwrap();
        // A new file grants nothing for one max ttl.
        waits.advance(StoreOptions::default().max_ttl);
        let group = Group::new("g").unwrap();
        Self { store, group, dir }
    }

    async fn join(&self, name: &str) -> TenureId {
        let join = Join {
            member: MemberId::new(name).unwrap(),
            ttl: Duration::from_secs(10),
            labels: Labels::default(),
        };
        let joined = self.store.join(&self.group, &join, Call::default()).await;
        joined.unwrap().tenure
    }

    async fn acquire(&self, tenure: &TenureId) -> AcquireOutcome {
        let asked = [poll()];
        let acquired = self.store.acquire(&self.group, tenure, &asked, Call::default()).await;
        acquired.unwrap().outcomes.remove(0)
    }

    async fn granted(&self, tenure: &TenureId) -> Token {
        match self.acquire(tenure).await {
            AcquireOutcome::Granted { token, .. } => token,
            other => panic!("{other:?}"),
        }
    }

    /// The revision that a beat tells.
    async fn told(&self, tenure: &TenureId) -> Revision {
        let beaten = self.store.beat(&self.group, &[Beat::of(tenure.clone())]).await;
        match beaten.unwrap().replies[0] {
            BeatReply::Renewed { revision, .. } => revision,
            other => panic!("{other:?}"),
        }
    }

    async fn held(&self, tenure: &TenureId) -> (usize, Revision) {
        let page = PageRequest::default();
        let held = self.store.held_leases(&self.group, tenure, &page).await.unwrap();
        (held.page.items.len(), held.revision)
    }
}

/// A step that has a lease granted and then goes on with `then`.
fn grant_and(
    tenure: &TenureId,
    then: impl FnOnce() -> Result<(), Cause> + Send + 'static,
) -> impl FnOnce(&mut Step<'_>) -> crate::step::Answer<()> + Send + 'static {
    let tenure = tenure.clone();
    move |step| {
        let acquired = step.acquire(&tenure, &[poll()])?;
        assert!(matches!(
            acquired.unwrap().outcomes[..],
            [AcquireOutcome::Granted { .. }]
        ));
        then()?;
        Ok(Ok(()))
    }
}

#[tokio::test]
async fn a_step_that_fails_takes_its_grants_back() {
    let world = World::new();
    let a = world.join("a").await;
    let failing = grant_and(&a, || Err(Cause::Strange("on purpose".to_owned())));
    let failed = world.store.step(&world.group, Call::default(), failing);
    // A grant in the same transaction, before or after, stays.
    let b = world.join("b").await;
    failed.await.unwrap_err();
    assert_eq!(
        (world.told(&a).await, world.held(&a).await),
        (Revision::NONE, (0, Revision::NONE))
    );
    let live = world.store.live(&world.group).unwrap().unwrap();
    assert!(live.lock().revised.is_empty());
    let token = world.granted(&b).await;
    let known = Revision(token.get());
    assert_eq!((world.told(&b).await, world.held(&b).await), (known, (1, known)));
    // A second change that fails gives the first one's number back.
    let given = [(poll(), token)];
    let tenure = b.clone();
    let failing = world.store.step::<()>(&world.group, Call::default(), move |step| {
        let _ = step.release_leases(&tenure, &given, None)?;
        Err(Cause::Strange("on purpose".to_owned()))
    });
    failing.await.unwrap_err();
    assert_eq!((world.told(&b).await, world.held(&b).await), (known, (1, known)));
    world.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beat_does_not_wait_for_a_grant_and_tells_only_what_is_durable() {
    let world = World::new();
    let a = world.join("a").await;
    let (inside, is_inside) = tokio::sync::oneshot::channel();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let step = grant_and(&a, move || {
        let _ = inside.send(());
        // The transaction stays open until the test has looked around.
        let _ = may_go.recv();
        Ok(())
    });
    let (store, group) = (Arc::clone(&world.store), world.group.clone());
    let granting = tokio::spawn(async move { store.step(&group, Call::default(), step).await });
    is_inside.await.unwrap();
    // The writer stands still, so memory alone answers.
    assert_eq!(world.told(&a).await, Revision::NONE);
    assert_eq!(world.held(&a).await, (0, Revision::NONE));
    go.send(()).unwrap();
    granting.await.unwrap().unwrap();
    let (leases, revision) = world.held(&a).await;
    assert_eq!(leases, 1);
    assert_eq!(world.told(&a).await, revision);
    world.store.close().await;
}

#[tokio::test]
async fn after_a_lost_connection_the_file_tells_the_revisions() {
    let world = World::new();
    let a = world.join("a").await;
    let token = world.granted(&a).await;
    let lost = world.store.step::<()>(&world.group, Call::default(), |_| {
        let failure = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC);
        Err(rusqlite::Error::SqliteFailure(failure, None).into())
    });
    lost.await.unwrap_err();
    // As if the commit before had reached the disk although its sync had failed.
    let other = rusqlite::Connection::open(world.dir.path().join("tenure.db")).unwrap();
    let next = token.get() + 1;
    other.execute("UPDATE members SET revision = revision + 1", []).unwrap();
    drop(other);
    world.join("b").await;
    assert_eq!(world.told(&a).await, Revision(next));
    world.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_up_that_an_end_overtakes_is_repeated() {
    let world = World::new();
    let a = world.join("a").await;
    world.granted(&a).await;
    let live = world.store.live(&world.group).unwrap().unwrap();
    let first = Arc::new(AtomicBool::new(true));
    let (store, group, id) = (Arc::clone(&world.store), world.group.clone(), live.id);
    let read = move |sql: &rusqlite::Connection| {
        let rows = super::listing::rows_of(sql, ONE, rusqlite::params![id, "poll"])?;
        if first.swap(false, Ordering::Relaxed) {
            // Between the rows and the look at the live table.
            let expelled = store.end(&group, &a, EndBy::Expel, Call::default());
            tokio::runtime::Handle::current().block_on(expelled).unwrap();
        }
        Ok((rows, ()))
    };
    let (leases, ()) = world.store.lease_rows(&live, read).await.unwrap();
    assert_eq!(
        (leases[0].alive, leases[0].expires_in),
        (false, Duration::from_secs(10))
    );
    world.store.close().await;
}

/// Polls once, so that the step is queued.
async fn queued<F: Future + Unpin>(future: &mut F) {
    let early = std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_ready())
    });
    assert!(!early.await, "the writer is stopped");
}

/// Stops the writer inside a step, until the answer is dropped or sent to.
async fn stop_the_writer(world: &World) -> std::sync::mpsc::Sender<()> {
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let (inside, is_inside) = tokio::sync::oneshot::channel();
    let (store, group) = (Arc::clone(&world.store), world.group.clone());
    tokio::spawn(async move {
        let work = move |_: &mut Step<'_>| {
            let _ = inside.send(());
            let _ = may_go.recv();
            Ok(Ok(()))
        };
        store.step(&group, Call::default(), work).await
    });
    is_inside.await.unwrap();
    go
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_fails_whole_leaves_no_revision_behind() {
    let world = World::new();
    let a = world.join("a").await;
    let go = stop_the_writer(&world).await;
    // Both meet in the next transaction, and the second one destroys it, as a full disk does.
    let asked = [poll()];
    let mut granting = world.store.acquire(&world.group, &a, &asked, Call::default());
    let mut destroying = Box::pin(world.store.step::<()>(&world.group, Call::default(), |step| {
        step.sql.execute_batch("ROLLBACK")?;
        Err(Cause::Strange("on purpose".to_owned()))
    }));
    queued(&mut granting).await;
    queued(&mut destroying).await;
    drop(go);
    let (granted, destroyed) = tokio::join!(granting, destroying);
    granted.unwrap_err();
    destroyed.unwrap_err();
    // The next commit publishes its own changes alone.
    world.join("b").await;
    assert_eq!(
        (world.told(&a).await, world.held(&a).await),
        (Revision::NONE, (0, Revision::NONE))
    );
    world.granted(&a).await;
    world.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenure_that_begins_in_the_transaction_of_the_last_ones_grant_has_no_revision() {
    let world = World::new();
    let a = world.join("a").await;
    let go = stop_the_writer(&world).await;
    let asked = [poll()];
    let mut granting = world.store.acquire(&world.group, &a, &asked, Call::default());
    let mut joining = Box::pin(world.join("a"));
    let name = a.member().clone();
    let mut looking = Box::pin(world.store.step(&world.group, Call::default(), move |step| {
        let entry = step.live.lock().head(&name).expect("it has joined again");
        Ok(Ok(entry.revision))
    }));
    queued(&mut granting).await;
    queued(&mut joining).await;
    queued(&mut looking).await;
    drop(go);
    let (granted, again, seen) = tokio::join!(granting, joining, looking);
    assert!(!granted.unwrap().revision.is_none());
    assert_eq!(seen.unwrap(), Revision::NONE);
    assert_eq!(world.told(&again).await, Revision::NONE);
    world.store.close().await;
}
