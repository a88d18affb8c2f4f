//! Short words for tests on a real file.

#![allow(dead_code, reason = "every test binary uses some of these")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::{ManualClock, SystemClock};
use tenure_core::event::{Event, EventLog, EventQuery};
use tenure_core::lease::{AcquireOutcome, LeaseStore, ReleaseOutcome, Token};
use tenure_core::membership::{Beat, BeatReply, Join, Labels, MembershipStore, Revision};
use tenure_core::registry::{ClaimMode, ClaimOutcome, RegistryStore};
use tenure_core::store::{Call, PageRequest, StoreOptions};
use tenure_core::sweep::SweepSteps;
use tenure_core::{Clock, Group, Key, LeaseName, MemberId, RegistryName, Result, TenureId};
use tenure_sqlite::SqliteStore;

/// Where the virtual wall clock starts.
pub(crate) const START: u64 = 1_763_676_800_000_000;

pub(crate) const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn manual() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(START, 1))
}

pub(crate) fn system() -> Arc<dyn Clock> {
    SystemClock::shared()
}

pub(crate) fn open(path: &Path, clock: &Arc<ManualClock>) -> Arc<SqliteStore> {
    SqliteStore::open(path, StoreOptions::default(), Arc::clone(clock) as _).expect("the store opens")
}

pub(crate) fn group() -> Group {
    Group::new("ingest").expect("a name")
}

pub(crate) fn devices() -> RegistryName {
    RegistryName::new("devices").expect("a name")
}

pub(crate) fn member(name: &str) -> MemberId {
    MemberId::new(name).expect("a name")
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).expect("a name")
}

pub(crate) fn joining(name: &str, ttl: Duration) -> Join {
    let labels = Labels::new(BTreeMap::from([("zone".to_owned(), "a".to_owned())])).expect("labels");
    Join {
        member: member(name),
        ttl,
        labels,
    }
}

pub(crate) async fn join(store: &SqliteStore, name: &str, ttl: Duration) -> TenureId {
    let joined = store.join(&group(), &joining(name, ttl), Call::default()).await;
    joined.expect("a join").tenure
}

pub(crate) async fn claim(store: &SqliteStore, tenure: &TenureId, name: &str) -> Result<ClaimOutcome> {
    let keys = [key(name)];
    let claimed = store
        .claim(&group(), &devices(), tenure, &keys, ClaimMode::Take, Call::default())
        .await;
    claimed.map(|mut claimed| claimed.outcomes.remove(0))
}

pub(crate) async fn beat(store: &SqliteStore, tenure: &TenureId) -> BeatReply {
    let beats = [Beat {
        tenure: tenure.clone(),
        ttl: None,
        revision: tenure_core::membership::Revision::NONE,
    }];
    store.beat(&group(), &beats).await.expect("a beat").replies[0]
}

pub(crate) async fn events(store: &SqliteStore) -> Vec<Event> {
    let query = EventQuery {
        after: None,
        limit: 1_000,
        kinds: Vec::new(),
    };
    store.events(&group(), &query).await.expect("events").events
}

pub(crate) fn lease(name: &str) -> LeaseName {
    LeaseName::new(name).expect("a name")
}

pub(crate) async fn acquire(store: &SqliteStore, tenure: &TenureId, name: &str) -> AcquireOutcome {
    let acquired = store.acquire(&group(), tenure, &[lease(name)], Call::default()).await;
    acquired.expect("an answer").outcomes.remove(0)
}

/// A lease that is to be had.
pub(crate) async fn granted(store: &SqliteStore, tenure: &TenureId, name: &str) -> Token {
    match acquire(store, tenure, name).await {
        AcquireOutcome::Granted { token, .. } => token,
        other => panic!("{name} for {tenure}: {other:?}"),
    }
}

pub(crate) async fn release(
    store: &SqliteStore,
    tenure: &TenureId,
    name: &str,
    token: Token,
    to: Option<&str>,
) -> ReleaseOutcome {
    let (group, given, to) = (group(), [(lease(name), token)], to.map(member));
    let done = store.release_leases(&group, tenure, &given, to.as_ref(), Call::default());
    done.await.expect("an answer").outcomes.remove(0)
}

/// The holder of a lease with its token, and whether it is alive.
pub(crate) async fn holder(store: &SqliteStore, name: &str) -> Option<(TenureId, Token, bool)> {
    let seen = store.lease_of(&group(), &lease(name)).await.expect("a look-up");
    seen.map(|seen| (seen.tenure, seen.token, seen.alive))
}

/// What a tenure holds, by name, and the revision of it.
pub(crate) async fn held(store: &SqliteStore, tenure: &TenureId) -> (Vec<String>, Revision) {
    let page = PageRequest {
        after: None,
        limit: 1_000,
    };
    let held = store.held_leases(&group(), tenure, &page).await.expect("a page");
    let names = held.page.items.into_iter().map(|lease| lease.lease.to_string());
    (names.collect(), held.revision)
}

/// Lets time pass while the store serves.
pub(crate) async fn pass(store: &SqliteStore, clock: &ManualClock, time: Duration) {
    let mut left = time;
    while !left.is_zero() {
        let status = store.tick(&group()).await.expect("a tick");
        let step = (status.gap / 3).min(left);
        clock.advance(step);
        left -= step;
    }
    store.tick(&group()).await.expect("a tick");
}

/// The owner of a key and whether it is alive.
pub(crate) async fn owner(store: &SqliteStore, name: &str) -> Option<(TenureId, bool)> {
    let claim = store
        .claim_of(&group(), &devices(), &key(name))
        .await
        .expect("a look-up");
    claim.map(|claim| (claim.tenure, claim.alive))
}
