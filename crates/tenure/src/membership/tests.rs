//! A membership over a store with injected faults.

mod beating;
mod claims;
mod leaving;
mod rejoin;
mod timeouts;

use std::sync::Mutex;

use tenure_core::clock::{Clock, ManualClock};
use tenure_core::membership::{Beat, BeatReply, Member};
use tenure_core::memory::MemoryStore;
use tenure_core::registry::{ClaimMode, ClaimOutcome};
use tenure_core::store::{Call, Store, StoreOptions};
use tokio::runtime::Handle;

use super::*;
use crate::client::{ClientSettings, Tenure};
use crate::group::GroupHandle;
use crate::loops::Loops;
use crate::testing::{Fault, Faulty, START, Verb, ms, pass, pass_until, secs, served, settle};

const TTL: Duration = secs(12);

/// One client over a store with injected faults, and another whose janitor keeps the store ticking.
struct World {
    clock: Arc<ManualClock>,
    memory: Arc<dyn Store>,
    store: Arc<Faulty>,
    group: GroupHandle,
    other: GroupHandle,
    /// Another process, which takes beats.
    beats: Loops,
}

async fn world() -> World {
    world_with_seed(1).await
}

async fn world_with_seed(seed: u64) -> World {
    let clock = Arc::new(ManualClock::new(START, seed));
    let memory: Arc<dyn Store> = MemoryStore::new(StoreOptions::default(), clock.clone());
    let store = Faulty::new(Arc::clone(&memory), clock.clone());
    let client = |store: Arc<dyn Store>, sweeps: bool| {
        let mut settings = ClientSettings::default();
        settings.sweeper = settings.sweeper.filter(|_| sweeps);
        Tenure::on_store(store, clock.clone(), Handle::current(), &settings).unwrap()
    };
    let other = client(Arc::clone(&memory), true).group("g").unwrap();
    let group = client(store.clone(), false).group("g").unwrap();
    let beats = served(&memory, &clock);
    World {
        clock: Arc::clone(&clock),
        memory,
        store,
        group,
        other,
        beats,
    }
}

fn named(member: &str) -> JoinOptions {
    JoinOptions {
        ttl: TTL,
        ..JoinOptions::named(member).unwrap()
    }
}

impl World {
    async fn join(&self) -> Membership {
        self.group.join(named("a")).await.unwrap()
    }

    async fn seen(&self, member: &str) -> Option<Member> {
        self.memory
            .member(self.group.name(), &MemberId::new(member).unwrap())
            .await
            .unwrap()
    }

    async fn pass(&self, time: Duration) {
        pass(&self.clock, time).await;
    }

    async fn until(&self, what: &str, condition: impl FnMut() -> bool) {
        pass_until(&self.clock, what, secs(60), condition).await;
    }
}

fn stopped(membership: &Membership) -> Option<EndReason> {
    match membership.status().phase {
        Phase::Stopped { reason } => Some(reason),
        _ => None,
    }
}

#[tokio::test]
async fn join_within_waits_for_an_unavailable_store() {
    let world = world().await;
    let away = Fault::Fail(ErrorKind::Unavailable);
    world.store.always(Verb::Join, Some(away.clone()));
    let error = world.group.join(named("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let joining = tokio::spawn({
        let group = world.group.clone();
        async move { group.join_within(named("a"), secs(60)).await }
    });
    world.pass(secs(30)).await;
    assert!(!joining.is_finished(), "it gave up");
    world.store.heal();
    world.until("it has joined", || joining.is_finished()).await;
    let membership = joining.await.unwrap().unwrap();
    assert_eq!(membership.verdict(), Verdict::Held);

    world.store.always(Verb::Join, Some(away));
    let joining = tokio::spawn({
        let group = world.group.clone();
        async move { group.join_within(named("b"), secs(60)).await }
    });
    world.pass(secs(62)).await;
    assert_eq!(joining.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    // A retry does not help here.
    world.store.always(Verb::Join, Some(Fault::Fail(ErrorKind::Denied)));
    let error = world.group.join_within(named("b"), secs(60)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn membership_stays_alive_while_it_exists() {
    let world = world().await;
    let membership = world.join().await;
    let tenure = membership.tenure();
    for _ in 0..20 {
        world.pass(TTL / 2).await;
        assert_eq!(membership.verdict(), Verdict::Held);
        assert!(
            world
                .seen("a")
                .await
                .is_some_and(|member| member.alive && member.tenure == tenure)
        );
    }
    let beats = world.store.calls(Verb::Beat);
    assert!(
        (29..=36).contains(&beats),
        "one beat per third of the ttl: {beats} in ten ttls"
    );
    assert_eq!(membership.leave().await.unwrap(), EndReason::Left);
    assert!(world.seen("a").await.is_none());
}

#[tokio::test]
async fn invalid_timing_is_rejected() {
    let world = world().await;
    for (options, must_say) in [
        (
            JoinOptions {
                ttl: ms(500),
                ..named("a")
            },
            "500ms",
        ),
        (
            JoinOptions {
                ttl: secs(500),
                ..named("a")
            },
            "max_ttl",
        ),
        (
            JoinOptions {
                interval: Some(secs(6)),
                ..named("a")
            },
            "2 x 6s",
        ),
        (
            JoinOptions {
                request_timeout: Some(secs(6)),
                ..named("a")
            },
            "request timeout (6s)",
        ),
        (
            JoinOptions {
                progress_within: Some(Duration::ZERO),
                ..named("a")
            },
            "progress_within",
        ),
    ] {
        let error = world.group.join(options).await.unwrap_err();
        assert!(error.to_string().contains(must_say), "{error}");
    }
    assert_eq!(world.store.calls(Verb::Join), 0);
}
