//! The sweeper slot: one sweeper handles due entries, the others return later, and correctness does not depend on it.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::SystemClock;
use tenure_core::id::{Group, MemberId};
use tenure_core::membership::{Join, Labels, MembershipStore};
use tenure_core::store::{Call, StoreOptions};
use tenure_core::sweep::SweepSteps;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_valkey::{ConnectionOptions, ValkeyStore};

const BEGIN: u64 = 1_763_676_800_000_000;
const TTL: Duration = Duration::from_secs(1);
const SLOT: Duration = Duration::from_millis(250);

struct World {
    server: Server,
    stores: [Arc<ValkeyStore>; 2],
    group: Group,
}

impl World {
    async fn new(flavour: Flavour) -> Self {
        let server = Server::start(flavour).expect("the server is installed");
        server.cli(&["HSET", "tenure:store", "born", "1"]).unwrap();
        let open = async || {
            let connection = ConnectionOptions {
                test_clock: true,
                request_timeout: Duration::from_secs(20),
                connect_timeout: Duration::from_secs(10),
                ..ConnectionOptions::default()
            };
            let options = StoreOptions::default();
            ValkeyStore::open(&server.url(), options, connection, SystemClock::shared())
                .await
                .unwrap()
        };
        let stores = [open().await, open().await];
        let group = Group::new("ingest").unwrap();
        let world = Self { server, stores, group };
        world.set(Duration::ZERO);
        let join = Join {
            member: MemberId::new("a").unwrap(),
            ttl: TTL,
            labels: Labels::default(),
        };
        world.stores[0]
            .join(&world.group, &join, Call::default())
            .await
            .unwrap();
        world
    }

    /// Sets the store's clock.
    fn set(&self, passed: Duration) {
        let now = BEGIN + u64::try_from(passed.as_micros()).unwrap();
        self.server.cli(&["SET", "tenure:test:now", &now.to_string()]).unwrap();
    }

    /// When something is due for the sweeper, by its own view.
    async fn due_in(&self, sweeper: usize) -> Option<Duration> {
        let status = self.stores[sweeper].tick(&self.group).await.unwrap();
        status.next_due.map(|due| due.since(status.as_of))
    }
}

async fn one_sweeper_at_a_time_is_told_that_something_is_due(flavour: Flavour) {
    let world = World::new(flavour).await;
    // Often enough to avoid a gap.
    for before in [300, 600, 900].map(Duration::from_millis) {
        world.set(before);
        for sweeper in [0, 1] {
            assert_eq!(world.due_in(sweeper).await, Some(TTL - before), "the slot is free");
        }
    }
    world.set(TTL);
    assert_eq!(world.due_in(0).await, Some(Duration::ZERO));
    assert_eq!(world.due_in(1).await, Some(SLOT));
    // The holder keeps the slot by returning; another sweeper gets it once it expires.
    world.set(TTL + SLOT * 3 / 4);
    assert_eq!(world.due_in(0).await, Some(Duration::ZERO));
    world.set(TTL + SLOT);
    assert_eq!(world.due_in(1).await, Some(SLOT * 3 / 4));
    world.set(TTL + SLOT * 7 / 4);
    assert_eq!(world.due_in(1).await, Some(Duration::ZERO));
    assert_eq!(world.due_in(0).await, Some(SLOT));
    // A slot from a clock that has since fallen back is ignored.
    let slot = format!("other {}", BEGIN + 3_600_000_000);
    world
        .server
        .cli(&["HSET", "{tenure:ingest}:meta", "slot", &slot])
        .unwrap();
    assert_eq!(world.due_in(0).await, Some(Duration::ZERO));
    // Correctness does not depend on the slot.
    let swept = world.stores[1]
        .end_lapsed(&world.group, 10, Call::default())
        .await
        .unwrap();
    assert_eq!(swept.ended.len(), 1);
    assert_eq!((world.due_in(0).await, world.due_in(1).await), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_sweeper_at_a_time_on_valkey() {
    one_sweeper_at_a_time_is_told_that_something_is_due(Flavour::Valkey).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_sweeper_at_a_time_on_redis() {
    one_sweeper_at_a_time_is_told_that_something_is_due(Flavour::Redis).await;
}
