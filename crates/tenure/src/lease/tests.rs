//! Leases of a membership over a store with injected faults.

mod doubts;
mod losing;
mod replies;
mod waits;

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tenure_core::clock::{Clock, ManualClock};
use tenure_core::id::{LeaseName, MemberId};
use tenure_core::lease::Lease;
use tenure_core::memory::MemoryStore;
use tenure_core::store::{Store, StoreOptions};
use tenure_core::verdict::Verdict;
use tokio::runtime::Handle;

use super::{Acquire, LeaseGuard};
use crate::client::{ClientSettings, Tenure};
use crate::group::GroupHandle;
use crate::loops::Loops;
use crate::membership::{JoinOptions, Membership};
use crate::testing::{Faulty, START, pass, pass_until, secs, served, settle};

const TTL: Duration = secs(12);

/// One client over a store with injected faults, and another whose janitor keeps the store ticking.
struct World {
    clock: Arc<ManualClock>,
    memory: Arc<dyn Store>,
    store: Arc<Faulty>,
    group: GroupHandle,
    other_store: Arc<Faulty>,
    other: GroupHandle,
    /// Another process, which takes beats.
    beats: Option<Loops>,
    /// The pulse as the replica receives it.
    replicated: Option<Loops>,
}

async fn world() -> World {
    world_with_seed(1).await
}

async fn world_with_seed(seed: u64) -> World {
    let clock = Arc::new(ManualClock::new(START, seed));
    let memory: Arc<dyn Store> = MemoryStore::new(StoreOptions::default(), clock.clone());
    let store = Faulty::new(Arc::clone(&memory), clock.clone());
    let other_store = Faulty::new(Arc::clone(&memory), clock.clone());
    let client = |store: Arc<dyn Store>, sweeps: bool| {
        let mut settings = ClientSettings::default();
        settings.sweeper = settings.sweeper.filter(|_| sweeps);
        Tenure::on_store(store, clock.clone(), Handle::current(), &settings).unwrap()
    };
    let other = client(other_store.clone(), true).group("g").unwrap();
    let group = client(store.clone(), false).group("g").unwrap();
    let beats = Some(served(&memory, &clock));
    World {
        clock: Arc::clone(&clock),
        memory,
        store,
        group,
        other_store,
        other,
        beats,
        replicated: None,
    }
}

fn named(member: &str) -> JoinOptions {
    JoinOptions {
        ttl: TTL,
        ..JoinOptions::named(member).unwrap()
    }
}

fn lease(name: &str) -> LeaseName {
    LeaseName::new(name).unwrap()
}

impl World {
    async fn join(&self) -> Membership {
        self.group.join(named("a")).await.unwrap()
    }

    async fn rival(&self) -> Membership {
        self.other.join(named("b")).await.unwrap()
    }

    /// The lease at the store.
    async fn seen(&self, name: &str) -> Option<Lease> {
        self.memory.lease_of(self.group.name(), &lease(name)).await.unwrap()
    }

    async fn pass(&self, time: Duration) {
        pass(&self.clock, time).await;
    }

    async fn until(&self, what: &str, condition: impl FnMut() -> bool) {
        pass_until(&self.clock, what, secs(300), condition).await;
    }

    /// Runs a future while virtual time passes.
    async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let (mut work, end) = (pin!(work), self.clock.mono() + secs(300));
        loop {
            settle().await;
            if let Poll::Ready(done) = futures_util::poll!(&mut work) {
                return done;
            }
            settle().await;
            if let Poll::Ready(done) = futures_util::poll!(&mut work) {
                return done;
            }
            assert!(self.clock.mono() < end, "waited in vain");
            self.clock
                .advance(self.clock.next_wake().unwrap_or(secs(1)).max(Duration::from_micros(1)));
        }
    }

    async fn acquire(&self, membership: &Membership, name: &str) -> Acquire {
        self.run(membership.leases().acquire(name)).await.unwrap()
    }

    async fn granted(&self, membership: &Membership, name: &str) -> LeaseGuard {
        match self.acquire(membership, name).await {
            Acquire::Granted(guard) => guard,
            other => panic!("{name} was not granted: {other:?}"),
        }
    }

    /// Retries until the lease is granted.
    async fn win(&self, membership: &Membership, name: &str) -> LeaseGuard {
        let end = self.clock.mono() + secs(300);
        loop {
            if let Ok(Acquire::Granted(guard)) = self.run(membership.leases().acquire(name)).await {
                return guard;
            }
            assert!(self.clock.mono() < end, "{name} was never granted");
            self.pass(Duration::from_millis(200)).await;
        }
    }
}

fn is_held(guard: &LeaseGuard) -> bool {
    guard.verdict() == Verdict::Held
}

fn member(name: &str) -> MemberId {
    MemberId::new(name).unwrap()
}
