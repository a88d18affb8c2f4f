//! The engine over a small disk in memory.

mod disk;
mod failures;
mod threads;
mod waits;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::disk::{Luck, Platter, TinyDisk, TinyPages};
use crate::call::{Op, Reply, StoreRequest};
use crate::clock::ManualClock;
use crate::engine::{Engine, StoreClock};
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::event::{EventId, EventLog, EventQuery};
use crate::id::{Group, LeaseName, MemberId, TenureId};
use crate::lease::{AcquireOutcome, LeaseStore};
use crate::membership::{Beat, BeatReply, EndBy, EndReason, Join, Labels, MembershipStore, Revision};
use crate::store::{Backend, Call, Finding, Health, Store, StoreOptions};
use crate::sweep::{Sweep, SweepSteps, Tick};
use crate::time::StoreTime;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

struct World {
    engine: Engine,
    platter: Arc<Platter>,
    clock: Arc<ManualClock>,
    group: Group,
}

#[async_trait]
impl Backend for World {
    async fn call(&self, ask: StoreRequest) -> Result<Reply> {
        self.engine.call(ask).await
    }
    fn max_ttl(&self) -> Duration {
        s(120)
    }
    fn part(&self, _: &Op) -> usize {
        usize::MAX
    }
    fn place(&self) -> String {
        "tiny:".to_owned()
    }
    fn health(&self) -> Health {
        self.engine.health()
    }
    async fn examine(&self) -> Vec<Finding> {
        Vec::new()
    }
    async fn close(&self) {
        self.engine.close().await;
    }
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(1_763_676_800_000_000, 1));
        Self::on(&Platter::new(), &clock)
    }

    fn on(platter: &Arc<Platter>, clock: &Arc<ManualClock>) -> Self {
        let time = Arc::new(StoreClock::new(Arc::clone(clock) as _, StoreTime::ZERO));
        let (disk, pages) = (TinyDisk(Arc::clone(platter)), TinyPages(Arc::clone(platter)));
        let engine = Engine::start(StoreOptions::default(), time, disk, Arc::new(pages)).unwrap();
        let world = Self {
            engine,
            platter: Arc::clone(platter),
            clock: Arc::clone(clock),
            group: Group::new("g").unwrap(),
        };
        world.serve(Duration::ZERO);
        world
    }

    /// Time passes while beats are taken.
    fn serve(&self, time: Duration) {
        self.clock.advance(time);
        let shared = &self.engine.shared;
        shared.pulse.beat(|| shared.clock.now(), 0);
    }

    async fn join(&self, name: &str) -> Result<TenureId> {
        let join = Join {
            member: MemberId::new(name)?,
            ttl: s(10),
            labels: Labels::default(),
        };
        let joined = MembershipStore::join(self, &self.group, &join, Call::default()).await;
        Ok(joined?.tenure)
    }

    async fn beat(&self, tenure: &TenureId, ttl: Option<Duration>) -> Result<BeatReply> {
        let beats = [Beat {
            tenure: tenure.clone(),
            ttl,
            revision: Revision::NONE,
            seen: Revision::NONE,
        }];
        Ok(MembershipStore::beat(self, &self.group, &beats).await?.replies[0])
    }

    async fn acquire(&self, tenure: &TenureId, name: &str) -> Result<AcquireOutcome> {
        let leases = [LeaseName::new(name)?];
        let acquired = LeaseStore::acquire(self, &self.group, tenure, &leases, Call::default()).await;
        Ok(acquired?.outcomes.remove(0))
    }

    async fn holder(&self, name: &str) -> Result<Option<TenureId>> {
        let lease = self.lease_of(&self.group, &LeaseName::new(name)?).await?;
        Ok(lease.map(|lease| lease.tenure))
    }

    async fn leave(&self, tenure: &TenureId) -> Result<EndReason> {
        self.end(&self.group, tenure, EndBy::Leave, Call::default()).await
    }

    async fn is_alive(&self, tenure: &TenureId) -> Option<bool> {
        let seen = self.member(&self.group, tenure.member()).await.unwrap();
        seen.map(|seen| seen.alive)
    }
}

/// Polls once.
async fn poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| match std::pin::Pin::new(&mut *future).poll(context) {
        std::task::Poll::Ready(done) => std::task::Poll::Ready(Some(done)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

fn renewed(reply: BeatReply) -> bool {
    matches!(reply, BeatReply::Renewed { .. })
}

#[tokio::test]
async fn step_is_answered_when_its_commit_is_durable() {
    let world = World::new();
    world.platter.hold(true);
    let mut joining = Box::pin(world.join("a"));
    assert!(poll(&mut joining).await.is_none());
    world.platter.wait_for_commit();
    assert!(poll(&mut joining).await.is_none());
    assert!(world.groups().await.unwrap().is_empty());
    world.platter.hold(false);
    let a = joining.await.unwrap();
    assert_eq!(world.groups().await.unwrap(), std::slice::from_ref(&world.group));
    assert_eq!(world.is_alive(&a).await, Some(true));
}

#[tokio::test]
async fn reads_wait_only_for_what_they_show() {
    let world = World::new();
    let (a, b) = (world.join("a").await.unwrap(), world.join("b").await.unwrap());
    world.acquire(&a, "quiet").await.unwrap();
    world.platter.hold(true);
    let mut acquiring = Box::pin(world.acquire(&b, "busy"));
    assert!(poll(&mut acquiring).await.is_none());
    let mut reading = Box::pin(world.holder("busy"));
    assert!(poll(&mut reading).await.is_none());
    assert_eq!(world.holder("quiet").await.unwrap(), Some(a.clone()));
    // A refusal depends on the grant that it names.
    let mut refused = Box::pin(world.acquire(&a, "busy"));
    assert!(poll(&mut refused).await.is_none());
    world.platter.hold(false);
    assert_eq!(reading.await.unwrap(), Some(b.clone()));
    assert!(matches!(acquiring.await.unwrap(), AcquireOutcome::Granted { .. }));
    assert!(matches!(refused.await.unwrap(), AcquireOutcome::Held { by, .. } if by == b));
}

#[tokio::test]
async fn beats_that_only_renew_wait_for_nothing() {
    let world = World::new();
    let (a, b) = (world.join("a").await.unwrap(), world.join("b").await.unwrap());
    world.platter.hold(true);
    let mut acquiring = Box::pin(world.acquire(&a, "l"));
    assert!(poll(&mut acquiring).await.is_none());
    // The revision is the newest durable one.
    let none = Revision::NONE;
    let renewal = BeatReply::Renewed {
        expires_in: s(10),
        revision: none,
    };
    assert_eq!(world.beat(&a, None).await.unwrap(), renewal);
    // A new ttl must survive a crash, and so must an end.
    let mut longer = Box::pin(world.beat(&b, Some(s(60))));
    assert!(poll(&mut longer).await.is_none());
    let mut leaving = Box::pin(world.leave(&a));
    assert!(poll(&mut leaving).await.is_none());
    let mut ended = Box::pin(world.beat(&a, None));
    assert!(poll(&mut ended).await.is_none());
    world.platter.hold(false);
    assert!(matches!(longer.await.unwrap(), BeatReply::Renewed { expires_in, .. } if expires_in == s(60)));
    assert_eq!(ended.await.unwrap(), BeatReply::Ended(EndReason::Left));
    assert!(matches!(acquiring.await.unwrap(), AcquireOutcome::Granted { .. }));
    assert_eq!(leaving.await.unwrap(), EndReason::Left);
}

#[tokio::test]
async fn events_are_shown_and_told_when_durable() {
    let world = World::new();
    world.join("a").await.unwrap();
    let query = EventQuery {
        limit: 100,
        ..EventQuery::default()
    };
    let before = world.events(&world.group, &query).await.unwrap();
    world.platter.hold(true);
    let mut waiting = Box::pin(world.wait_for_events(&world.group, before.last, s(3600)));
    assert!(poll(&mut waiting).await.is_none());
    let mut joining = Box::pin(world.join("b"));
    assert!(poll(&mut joining).await.is_none());
    assert!(poll(&mut waiting).await.is_none());
    // A page shows everything that was applied when it was asked for.
    let mut page = Box::pin(world.events(&world.group, &query));
    assert!(poll(&mut page).await.is_none());
    world.platter.hold(false);
    joining.await.unwrap();
    waiting.await.unwrap();
    assert_eq!(page.await.unwrap().events.len(), before.events.len() + 1);
}

#[tokio::test]
async fn waiting_for_events_of_a_new_group_ends_with_its_first() {
    let world = World::new();
    let mut waiting = Box::pin(world.wait_for_events(&world.group, EventId(0), s(3600)));
    assert!(poll(&mut waiting).await.is_none());
    world.join("a").await.unwrap();
    waiting.await.unwrap();
}

#[tokio::test]
async fn many_steps_share_a_commit() {
    let world = World::new();
    world.join("a").await.unwrap();
    let before = world.platter.commits();
    world.platter.hold(true);
    let mut first = Box::pin(world.join("first"));
    assert!(poll(&mut first).await.is_none());
    world.platter.wait_for_commit();
    let names: Vec<String> = (0..50).map(|n| format!("m{n}")).collect();
    let mut joining: Vec<_> = names.iter().map(|name| Box::pin(world.join(name))).collect();
    for join in &mut joining {
        assert!(poll(join).await.is_none());
    }
    world.platter.hold(false);
    first.await.unwrap();
    for join in joining {
        join.await.unwrap();
    }
    assert_eq!(world.platter.commits(), before + 2);
}

#[tokio::test]
async fn restart_keeps_what_was_answered() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    world.acquire(&a, "l").await.unwrap();
    world.close().await;
    assert!(world.platter.is_closed());
    assert!(world.join("b").await.unwrap_err().is_unavailable());
    let world = World::on(&world.platter, &world.clock);
    assert_eq!(world.holder("l").await.unwrap(), Some(a.clone()));
    assert!(matches!(
        world.acquire(&a, "l").await.unwrap(),
        AcquireOutcome::Kept { .. }
    ));
    assert!(renewed(world.beat(&a, None).await.unwrap()));
}

/// The tick in the row of an idle group is as old as its last step; a start still does not count as a gap.
#[tokio::test]
async fn restart_of_idle_group_withholds_no_lease() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    for _ in 0..20 {
        world.serve(Duration::from_millis(300));
        world.tick(&world.group).await.unwrap();
    }
    world.close().await;
    let world = World::on(&world.platter, &world.clock);
    assert!(matches!(
        world.acquire(&a, "l").await.unwrap(),
        AcquireOutcome::Granted { .. }
    ));
}

#[tokio::test]
async fn close_commits_what_was_applied() {
    let world = World::new();
    world.join("a").await.unwrap();
    world.platter.hold(true);
    let mut joining = Box::pin(world.join("b"));
    assert!(poll(&mut joining).await.is_none());
    let mut closing = Box::pin(world.engine.close());
    assert!(poll(&mut closing).await.is_none());
    world.platter.hold(false);
    closing.await;
    joining.await.unwrap();
    assert_eq!(world.platter.rows(&world.group), 2);
}

#[tokio::test]
async fn late_call_changes_nothing() {
    let world = World::new();
    let join = Join {
        member: MemberId::new("a").unwrap(),
        ttl: s(10),
        labels: Labels::default(),
    };
    let past = Call::not_after(StoreTime::from_micros(1));
    let late = MembershipStore::join(&world, &world.group, &join, past)
        .await
        .unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TooLate);
    assert!(world.groups().await.unwrap().is_empty());
    assert_eq!(world.platter.commits(), 0);
}

/// The allocator is several times slower above 1 KiB, and each call of a store is boxed.
#[test]
fn future_of_a_call_is_small() {
    let world = World::new();
    let ask = StoreRequest {
        group: Some(world.group.clone()),
        op: Op::Tick(Tick::default()),
        call: Call::default(),
    };
    let (ask_size, size) = (size_of_val(&ask), size_of_val(&world.engine.call(ask)));
    assert!(size + ask_size <= 1_000, "{size} B beside {ask_size} B");
}

#[tokio::test]
async fn idle_tick_costs_no_commit() {
    let world = World::new();
    world.join("a").await.unwrap();
    let before = world.platter.commits();
    for _ in 0..10 {
        world.serve(Duration::from_millis(300));
        assert_eq!(world.tick(&world.group).await.unwrap().members, 1);
    }
    assert_eq!(world.platter.commits(), before);
}
