//! The calls that a middleware receives.

use std::sync::{Arc, Mutex};

use super::*;
use crate::call::Verb;
use crate::clock::{Clock, ManualClock};
use crate::error::ErrorKind;
use crate::event::{EventId, EventQuery};
use crate::id::{Key, LeaseName, TenureId};
use crate::lease::LeaseStore;
use crate::membership::{Beat, EndBy, Join, Labels, MembershipStore};
use crate::memory::MemoryStore;
use crate::registry::ClaimMode;
use crate::store::{Call, PageRequest, StoreOptions};
use crate::sweep::{Sweep, SweepRequest};
use crate::target::TargetSpec;

/// 2026-01-01T00:00:00Z.
const START: u64 = 1_767_225_600_000_000;

/// Records each call.
struct Diary {
    inside: Arc<dyn Store>,
    seen: Mutex<Vec<(Verb, Option<Group>, usize)>>,
}

impl Middleware for Diary {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.inside)
    }
    async fn handle(&self, request: StoreRequest) -> Result<Reply> {
        let what = (request.op.verb(), request.group.clone(), request.op.items());
        self.seen.lock().unwrap().push(what);
        self.inside.call(request).await
    }
}

fn diary() -> Arc<Diary> {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(START, 7));
    Arc::new(Diary {
        inside: MemoryStore::new(StoreOptions::default(), clock),
        seen: Mutex::default(),
    })
}

impl Diary {
    /// The calls since the last check.
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
async fn middleware_receives_every_call_under_its_verb() {
    let diary = diary();
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
async fn request_has_its_group_and_item_count() {
    let diary = diary();
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
async fn sweep_reaches_middleware_as_single_steps() {
    let diary = diary();
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
async fn long_call_reaches_middleware_in_parts() {
    let diary = diary();
    let tenure = join(&*diary).await;
    diary.seen();
    let leases: Vec<LeaseName> = (0..401).map(|n| format!("t-{n}").parse().unwrap()).collect();
    let acquired = diary
        .acquire(&group(), &tenure, &leases, Call::default())
        .await
        .unwrap();
    assert_eq!(acquired.outcomes.len(), leases.len());
    assert!(acquired.before < acquired.revision, "{acquired:?}");
    let parts = [200, 200, 1].map(|items| (Verb::Acquire, Some(group()), items));
    assert_eq!(diary.seen(), parts);
}

#[tokio::test]
async fn invalid_call_does_not_reach_middleware() {
    let diary = diary();
    let page = PageRequest {
        limit: 0,
        ..PageRequest::default()
    };
    let refused = diary.members(&group(), &page).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert_eq!(diary.verbs(), []);
}
