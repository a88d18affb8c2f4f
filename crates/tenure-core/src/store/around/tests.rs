//! What a store around another sees, and what it cannot change.

use std::sync::{Arc, Mutex};

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::membership::Labels;
use crate::memory::MemoryStore;
use crate::store::StoreOptions;

/// 2026-01-01T00:00:00Z.
const START: u64 = 1_767_225_600_000_000;

/// Writes down what comes by.
struct Diary {
    inside: Arc<dyn Store>,
    hands_out_its_steps: bool,
    seen: Mutex<Vec<(Verb, Option<Group>, usize)>>,
}

impl Around for Diary {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.inside)
    }
    async fn around<T: Send + 'static>(&self, ask: Ask<T>) -> Result<T> {
        self.seen.lock().unwrap().push((ask.verb, ask.group.clone(), ask.items));
        ask.of(self.store()).await
    }
    fn steps(&self) -> Steps<'_> {
        if self.hands_out_its_steps {
            Steps::Inside(self.inside.steps())
        } else {
            Steps::Around
        }
    }
}

/// A store that somebody else sweeps.
struct Unswept(Arc<dyn Store>);

impl Around for Unswept {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0)
    }
    async fn around<T: Send + 'static>(&self, ask: Ask<T>) -> Result<T> {
        ask.of(self.store()).await
    }
    fn steps(&self) -> Steps<'_> {
        Steps::Inside(None)
    }
}

fn diary(hands_out_its_steps: bool) -> Arc<Diary> {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(START, 7));
    Arc::new(Diary {
        inside: MemoryStore::new(StoreOptions::default(), clock),
        hands_out_its_steps,
        seen: Mutex::default(),
    })
}

impl Diary {
    /// What was written down since the last look.
    fn seen(&self) -> Vec<(Verb, Option<Group>, usize)> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
    fn verbs(&self) -> Vec<Verb> {
        self.seen().into_iter().map(|(verb, ..)| verb).collect()
    }
}

fn group() -> Group {
    "fleet".parse().unwrap()
}

async fn join(store: &dyn Store) -> TenureId {
    let join = Join {
        member: "node-1".parse().unwrap(),
        ttl: Duration::from_secs(30),
        labels: Labels::default(),
    };
    store.join(&group(), &join, Call::default()).await.unwrap().tenure
}

#[tokio::test]
async fn every_call_goes_around_under_its_own_verb() {
    let diary = diary(false);
    let store: &dyn Store = &*diary;
    let (call, page, spec) = (Call::default(), PageRequest::default(), TargetSpec::default());
    let (group, registry, key) = (group(), "devices".parse().unwrap(), "d-1".parse::<Key>().unwrap());
    let lease: LeaseName = "t-1".parse().unwrap();
    let tenure = join(store).await;
    store.beat(&group, &[Beat::of(tenure.clone())]).await.unwrap();
    store.member(&group, tenure.member()).await.unwrap();
    store.members(&group, &page).await.unwrap();
    let keys = std::slice::from_ref(&key);
    let claimed = store.claim(&group, &registry, &tenure, keys, ClaimMode::IfAbsent, call);
    claimed.await.unwrap();
    store.claim_of(&group, &registry, &key).await.unwrap();
    store.claims(&group, &registry, None, &page).await.unwrap();
    let released = store.release_claim(&group, &registry, &key, &tenure, call);
    released.await.unwrap();
    let leases = std::slice::from_ref(&lease);
    store.acquire(&group, &tenure, leases, call).await.unwrap();
    store.lease_of(&group, &lease).await.unwrap();
    store.leases(&group, Some(tenure.member()), &page).await.unwrap();
    store.held_leases(&group, &tenure, &page).await.unwrap();
    store.release_leases(&group, &tenure, &[], None, call).await.unwrap();
    store.put_target(&group, &lease, spec, call).await.unwrap();
    store.target(&group, &lease).await.unwrap();
    store.targets(&group, &page).await.unwrap();
    store.remove_target(&group, &lease, call).await.unwrap();
    let query = EventQuery {
        limit: 10,
        ..EventQuery::default()
    };
    let events = store.events(&group, &query).await.unwrap();
    let before_the_last = EventId::default();
    assert!(events.last > before_the_last, "there is nothing to wait for");
    let waited = store.wait_for_events(&group, before_the_last, Duration::from_secs(1));
    waited.await.unwrap();
    store.status(&group).await.unwrap();
    store.end(&group, &tenure, EndBy::Leave, call).await.unwrap();
    store.now().await.unwrap();
    assert_eq!(store.groups().await.unwrap(), [group]);
    use Verb as V;
    assert_eq!(
        diary.verbs(),
        [
            V::Join,
            V::Beat,
            V::Member,
            V::Members,
            V::Claim,
            V::ClaimOf,
            V::Claims,
            V::ReleaseClaim,
            V::Acquire,
            V::LeaseOf,
            V::Leases,
            V::HeldLeases,
            V::ReleaseLeases,
            V::PutTarget,
            V::Target,
            V::Targets,
            V::RemoveTarget,
            V::Events,
            V::WaitForEvents,
            V::Status,
            V::End,
            V::Now,
            V::Groups,
        ]
    );
}

#[tokio::test]
async fn an_ask_tells_its_group_and_how_much_it_lists() {
    let diary = diary(false);
    let tenure = join(&*diary).await;
    diary.seen();
    let beats = [Beat::of(tenure.clone()), Beat::of(tenure.clone()), Beat::of(tenure)];
    diary.beat(&group(), &beats).await.unwrap();
    diary.members(&group(), &PageRequest::default()).await.unwrap();
    diary.now().await.unwrap();
    assert_eq!(
        diary.seen(),
        [
            (Verb::Beat, Some(group()), 3),
            (Verb::Members, Some(group()), 0),
            (Verb::Now, None, 0)
        ]
    );
}

#[tokio::test]
async fn a_pass_is_made_of_steps_that_go_around() {
    let diary = diary(false);
    let (request, call) = (SweepRequest::default(), Call::default());
    diary.sweep(&group(), &request, "p", call).await.unwrap();
    assert_eq!(diary.verbs(), [Verb::EndLapsed, Verb::Release, Verb::Reap, Verb::Tick]);
    let dry = SweepRequest {
        dry_run: true,
        ..request
    };
    diary.sweep(&group(), &dry, "p", call).await.unwrap();
    assert_eq!(diary.verbs(), [Verb::Doomed, Verb::Orphans]);
}

#[tokio::test]
async fn a_pass_is_one_call_where_the_steps_are_those_inside() {
    let diary = diary(true);
    let (request, call) = (SweepRequest::default(), Call::default());
    diary.sweep(&group(), &request, "p", call).await.unwrap();
    assert_eq!(diary.verbs(), [Verb::Sweep]);
    let steps = Sweep::steps(&*diary).expect("the store inside has steps");
    steps.tick(&group()).await.unwrap();
    assert_eq!(diary.verbs(), [], "a step went around");
}

#[tokio::test]
async fn a_store_that_is_not_swept_here_has_no_steps_around_it_either() {
    let inside = Arc::new(Unswept(diary(false)));
    let around = Diary {
        inside,
        hands_out_its_steps: false,
        seen: Mutex::default(),
    };
    assert!(Sweep::steps(&around).is_none());
    let (request, call) = (SweepRequest::default(), Call::default());
    around.sweep(&group(), &request, "p", call).await.unwrap();
    assert_eq!(around.verbs(), [Verb::Sweep], "the pass is that of the store inside");
    let refused = around.tick(&group()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}
