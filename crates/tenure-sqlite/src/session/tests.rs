//! Sessions where a step or a transaction fails. They need the writer's own connection.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::ManualClock;
use tenure_core::id::{ConnectionId, Group, MemberId, SessionId, TenureId};
use tenure_core::membership::{Join, Joined, Labels, MembershipStore};
use tenure_core::session::{Attach, AttachOutcome, Detach, SessionStats, SessionStore};
use tenure_core::store::{Backend, Call, StoreOptions};
use tenure_core::sweep::{GroupStatus, SweepSteps};

use crate::error::Cause;
use crate::store::SqliteStore;

struct World {
    store: Arc<SqliteStore>,
    group: Group,
    front: TenureId,
    _dir: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_763_676_800_000_000, 1));
        let waits = Arc::clone(&clock);
        let store = SqliteStore::open(dir.path().join("tenure.db"), StoreOptions::default(), clock).unwrap();
        // A new file grants nothing for one max ttl.
        waits.advance(StoreOptions::default().max_ttl);
        let group = Group::new("g").unwrap();
        let join = Join {
            member: MemberId::new("front").unwrap(),
            ttl: Duration::from_secs(10),
            labels: Labels::default(),
        };
        let Joined { tenure: front, .. } = store.join(&group, &join, Call::default()).await.unwrap();
        Self {
            store,
            group,
            front,
            _dir: dir,
        }
    }

    async fn attach(&self, name: &str) -> AttachOutcome {
        let asked = [plain(name)];
        let attached = self.store.attach(&self.group, &self.front, &asked, Call::default());
        attached.await.unwrap().outcomes.remove(0)
    }

    /// What the group knows about its sessions.
    async fn known(&self) -> (GroupStatus, SessionStats) {
        let status = self.store.tick(&self.group).await.unwrap();
        (status, self.store.session_stats(&self.group).await.unwrap())
    }
}

fn plain(name: &str) -> Attach {
    Attach::new(SessionId::new(name).unwrap(), ConnectionId::new("c").unwrap())
}

fn gone(name: &str) -> Detach {
    Detach {
        session: SessionId::new(name).unwrap(),
        connection: ConnectionId::new("c").unwrap(),
        epoch: None,
    }
}

#[tokio::test]
async fn a_step_that_fails_takes_its_sessions_back() {
    let world = World::new().await;
    world.attach("stays").await;
    let leaving = [gone("stays")];
    let before = world.known().await;
    let front = world.front.clone();
    let failing = world.store.step::<()>(&world.group, Call::default(), move |step| {
        let _ = step.attach(&front, &[plain("new")])?;
        let _ = step.detach(&front, &leaving)?;
        Err(Cause::Strange("on purpose".to_owned()))
    });
    failing.await.unwrap_err();
    let (status, stats) = world.known().await;
    assert_eq!((status.sessions, status.disconnected, status.next_reap), (1, 0, None));
    assert_eq!((status.last_event, stats), (before.0.last_event, before.1));
    let none = world.store.session(&world.group, &SessionId::new("new").unwrap()).await;
    assert_eq!(none.unwrap(), None);
    world.store.close().await;
}

#[tokio::test]
async fn a_transaction_that_fails_whole_takes_its_sessions_back() {
    let world = World::new().await;
    world.attach("stays").await;
    let front = world.front.clone();
    let leaving = [gone("stays")];
    let destroying = world.store.step::<()>(&world.group, Call::default(), move |step| {
        let _ = step.attach(&front, &[plain("new")])?;
        let _ = step.detach(&front, &leaving)?;
        step.sql.execute_batch("ROLLBACK")?;
        Err(Cause::Strange("on purpose".to_owned()))
    });
    destroying.await.unwrap_err();
    // The next commit publishes its own changes alone.
    world.attach("next").await;
    let (status, stats) = world.known().await;
    assert_eq!((status.sessions, status.disconnected, status.next_reap), (2, 0, None));
    assert_eq!((stats.active, stats.disconnected), (2, 0));
    world.store.close().await;
}
