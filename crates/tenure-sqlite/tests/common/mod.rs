//! Short words for tests on a real file.

#![allow(dead_code, reason = "every test binary uses some of these")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::{ManualClock, SystemClock};
use tenure_core::event::{Event, EventLog, EventQuery};
use tenure_core::membership::{Beat, BeatReply, Join, Labels, MembershipStore};
use tenure_core::registry::{ClaimMode, ClaimOutcome, RegistryStore};
use tenure_core::store::{Call, StoreOptions};
use tenure_core::{Clock, Group, Key, MemberId, RegistryName, Result, TenureId};
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

/// The owner of a key and whether it is alive.
pub(crate) async fn owner(store: &SqliteStore, name: &str) -> Option<(TenureId, bool)> {
    let claim = store
        .claim_of(&group(), &devices(), &key(name))
        .await
        .expect("a look-up");
    claim.map(|claim| (claim.tenure, claim.alive))
}
