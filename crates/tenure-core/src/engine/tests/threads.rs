//! Many threads over the real writer, while commits fail at random.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::clock::{Clock, Mono, Sleep, SystemClock};
use crate::event::Event;
use crate::id::{Key, RegistryName};
use crate::registry::{ClaimMode, ClaimOutcome, RegistryStore};
use crate::settling::GapCause;

const THREADS: usize = 4;
const ROUNDS: usize = 400;
const LEASES: usize = 3;

/// A clock that often yields after a reading, so that calls which read it outside the lock of their group get out of
/// order.
#[derive(Debug)]
struct Slow(SystemClock);

impl Clock for Slow {
    fn mono(&self) -> Mono {
        let now = self.0.mono();
        if self.0.entropy().is_multiple_of(4) {
            std::thread::yield_now();
        }
        now
    }
    fn wall_micros(&self) -> u64 {
        self.0.wall_micros()
    }
    fn sleep(&self, duration: Duration) -> Sleep {
        self.0.sleep(duration)
    }
    fn entropy(&self) -> u64 {
        self.0.entropy()
    }
}

/// What all threads share: the store, and who they believe holds each lease (0: none) with its highest token.
struct Shared {
    world: World,
    holders: [AtomicU64; LEASES],
    tokens: [AtomicU64; LEASES],
}

impl Shared {
    fn new() -> Self {
        let (platter, clock) = (Platter::new(), Arc::new(ManualClock::new(0, 1)));
        let time = Arc::new(StoreClock::new(Arc::new(Slow(SystemClock::new())), StoreTime::ZERO));
        let (disk, pages) = (TinyDisk(Arc::clone(&platter)), TinyPages(Arc::clone(&platter)));
        let engine = Engine::start(StoreOptions::default(), time, disk, Arc::new(pages)).unwrap();
        let world = World {
            engine,
            platter,
            clock,
            group: Group::new("g").unwrap(),
        };
        Self {
            world,
            holders: Default::default(),
            tokens: Default::default(),
        }
    }

    /// Acquires a lease and releases it again, and checks that no other thread holds it in between.
    async fn hold(&self, tenure: &TenureId, me: u64, lease: usize) {
        let name = LeaseName::new(format!("l{lease}")).unwrap();
        let token = match self.world.acquire(tenure, name.as_str()).await {
            Ok(AcquireOutcome::Granted { token, .. }) => token,
            // An earlier grant or release of this thread had no certain answer.
            Ok(AcquireOutcome::Kept { token, .. }) => token,
            Ok(_) | Err(_) => return,
        };
        let before = self.holders[lease].swap(me, Ordering::SeqCst);
        assert!(before == 0 || before == me, "two holders of {name}: {before} and {me}");
        let highest = self.tokens[lease].fetch_max(token.get(), Ordering::SeqCst);
        assert!(highest <= token.get(), "token {token:?} of {name} after {highest}");
        std::thread::yield_now();
        self.holders[lease].store(0, Ordering::SeqCst);
        let _ = self
            .world
            .release_leases(&self.world.group, tenure, &[(name, token)], None, Call::default())
            .await;
    }

    /// Claims a key of its own. Answers whether that was acknowledged.
    async fn claim(&self, tenure: &TenureId, key: &Key) -> bool {
        let (registry, keys) = (RegistryName::new("r").unwrap(), [key.clone()]);
        let group = &self.world.group;
        let claimed = self
            .world
            .claim(group, &registry, tenure, &keys, ClaimMode::Take, Call::default())
            .await;
        matches!(claimed.map(|mut reply| reply.outcomes.remove(0)), Ok(ClaimOutcome::New))
    }

    async fn work(&self, me: u64) -> Vec<Key> {
        let mut acknowledged = Vec::new();
        let tenure = loop {
            if let Ok(tenure) = self.world.join(&format!("m{me}")).await {
                break tenure;
            }
        };
        for round in 0..ROUNDS {
            self.hold(&tenure, me, round % LEASES).await;
            let key = Key::new(format!("k{me}-{round}")).unwrap();
            if self.claim(&tenure, &key).await {
                acknowledged.push(key);
            }
            assert!(renewed(self.world.beat(&tenure, None).await.unwrap()));
        }
        acknowledged
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(work)
}

#[test]
fn threads_over_failing_commits_keep_every_promise() {
    let shared = Shared::new();
    let is_over = AtomicBool::new(false);
    let acknowledged: Vec<Key> = std::thread::scope(|scope| {
        let (shared, is_over) = (&shared, &is_over);
        scope.spawn(move || {
            let chance = SystemClock::new();
            while !is_over.load(Ordering::SeqCst) {
                let luck = match chance.entropy() % 8 {
                    0 => Luck::Full,
                    1 => Luck::Doubtful,
                    _ => Luck::Good,
                };
                shared.world.platter.be(luck);
                std::thread::yield_now();
            }
            shared.world.platter.be(Luck::Good);
        });
        let workers: Vec<_> = (1..=THREADS as u64)
            .map(|me| scope.spawn(move || block_on(shared.work(me))))
            .collect();
        let done = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        is_over.store(true, Ordering::SeqCst);
        done
    });
    assert!(!acknowledged.is_empty());
    block_on(async {
        let (group, registry) = (&shared.world.group, RegistryName::new("r").unwrap());
        for key in &acknowledged {
            let found = shared.world.claim_of(group, &registry, key).await.unwrap();
            assert!(found.is_some(), "{key} was acknowledged and is lost");
        }
        let fell = GapCause::ClockBack.as_str();
        let events = all_events(&shared.world).await;
        assert!(events.windows(2).all(|pair| pair[0].at <= pair[1].at));
        assert!(!events.iter().any(|event| event.reason.as_deref() == Some(fell)));
    });
}

async fn all_events(world: &World) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        let query = EventQuery {
            after: Some(EventId(events.last().map_or(0, |event: &Event| event.id.0))),
            limit: 1_000,
            ..EventQuery::default()
        };
        let page = world.events(&world.group, &query).await.unwrap();
        if page.events.is_empty() {
            return events;
        }
        events.extend(page.events);
    }
}
