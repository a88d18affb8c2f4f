//! The conformance suite over the reference store.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure_core::clock::{Clock, ManualClock};
use tenure_core::conformance::Harness;
use tenure_core::conformance::specification::replay;
use tenure_core::memory::MemoryStore;
use tenure_core::store::{Store, StoreOptions};

struct Memory {
    clock: Arc<ManualClock>,
    options: StoreOptions,
    store: Mutex<Arc<MemoryStore>>,
}

impl Memory {
    fn current(&self) -> MutexGuard<'_, Arc<MemoryStore>> {
        self.store.lock().expect("no case panics while it holds the lock")
    }
}

#[async_trait::async_trait]
impl Harness for Memory {
    fn store(&self) -> Arc<dyn Store> {
        self.current().clone()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn lose_data(&self) -> bool {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        *self.current() = MemoryStore::after_loss(self.options.clone(), clock);
        true
    }
}

async fn memory(options: StoreOptions) -> Box<dyn Harness> {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000_000, 1));
    let store = MemoryStore::new(options.clone(), Arc::clone(&clock) as Arc<dyn Clock>);
    Box::new(Memory {
        clock,
        options,
        store: Mutex::new(store),
    })
}

tenure_core::conformance_tests!(memory);
tenure_core::conformance_tests!(memory, shared_leases);
tenure_core::conformance_tests!(memory, waits);
tenure_core::conformance_tests!(memory, traces: tenure_testkit::spec::traces);
tenure_core::roster_conformance_tests!(memory);

/// A replay that finds no difference would be worth nothing if it could not find one.
#[tokio::test]
async fn replay_finds_each_defect_of_the_specification() {
    // The other defects are in the process, in the numbers of tokens, in a second group or in a lost tail, which no
    // trace shows.
    for defect in [
        "no_gap",
        "early_grant",
        "ghost_read",
        "release_twice",
        "no_wait_after_loss",
        "beat_revives",
        "janitor_proves",
        "dated_by_visit",
        "carried_evidence",
    ] {
        let mut found = false;
        for seed in 1..=48 {
            let Some(traces) = tenure_testkit::spec::defective_traces(1, seed, Some(defect)) else {
                return;
            };
            found = replay(&|options| Box::pin(memory(options)), &traces[0]).await.is_err();
            if found {
                break;
            }
        }
        assert!(found, "{defect}");
    }
}

#[tokio::test]
async fn store_after_data_loss_grants_nothing_for_one_max_ttl() {
    use tenure_core::lease::{AcquireOutcome, LeaseStore};
    use tenure_core::membership::{EndBy, Join, Labels, MembershipStore};
    use tenure_core::settling::GapCause;
    use tenure_core::store::Call;
    use tenure_core::sweep::SweepSteps;

    let clock = Arc::new(ManualClock::new(1_767_225_600_000_000, 1));
    let store = MemoryStore::after_loss(StoreOptions::default(), Arc::clone(&clock) as Arc<dyn Clock>);
    let (group, lease) = ("fleet".parse().unwrap(), "target".parse().unwrap());
    let join = Join {
        member: "node-1".parse().unwrap(),
        ttl: Duration::from_secs(30),
        labels: Labels::default(),
    };
    let joined = store.join(&group, &join, Call::default()).await.unwrap();
    let refused = store
        .acquire(&group, &joined.tenure, std::slice::from_ref(&lease), Call::default())
        .await;
    let retry_in = StoreOptions::default().max_ttl;
    assert_eq!(
        refused.unwrap().outcomes,
        [AcquireOutcome::Unsettled {
            retry_in,
            cause: GapCause::New
        }]
    );
    // No member remains for which the following silence would be an outage.
    let left = store.end(&group, &joined.tenure, EndBy::Leave, Call::default());
    left.await.unwrap();
    clock.advance(retry_in);
    store.tick(&group).await.unwrap();
    // Every group starts fresh, including one that was never read before.
    let other = "other".parse().unwrap();
    for group in [&group, &other] {
        let tenure = store.join(group, &join, Call::default()).await.unwrap().tenure;
        let granted = store.acquire(group, &tenure, std::slice::from_ref(&lease), Call::default());
        assert!(granted.await.unwrap().outcomes[0].token().is_some(), "{group}");
    }
}
