//! A daemon as in production: with a janitor and rosters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::loops::Loops;
use tenure::roster::{Rosters, RostersSettings};
use tenure::sweeper::{Sweeper, SweeperSettings};
use tenure_core::clock::{Clock, ManualClock, SystemClock};
use tenure_core::id::{Group, MemberId};
use tenure_core::ledger::{Ledger, MemoryLedger};
use tenure_core::membership::{Join, Labels};
use tenure_core::memory::MemoryStore;
use tenure_core::store::{Call, Store, StoreOptions};
use tenure_server::{Parts, RosterParts, Settings};
use tokio::runtime::Handle;

use crate::common::Daemon;

/// A ttl that does not lapse within a test.
pub const LONG: Duration = Duration::from_secs(120);

pub fn store() -> Arc<dyn Store> {
    MemoryStore::new(StoreOptions::default(), SystemClock::shared())
}

pub fn group(name: &str) -> Group {
    Group::new(name).expect("a name")
}

/// What a daemon over a store is made of.
pub fn parts(store: &Arc<dyn Store>) -> Parts {
    let clock: Arc<dyn Clock> = SystemClock::shared();
    let loops = Loops::new(Arc::clone(&clock), Handle::current());
    let sweeper = Sweeper::start(
        Arc::clone(store),
        Arc::clone(&clock),
        SweeperSettings::default(),
        &loops,
    );
    let ledger: Arc<dyn Ledger> = MemoryLedger::new(Arc::clone(&clock));
    let (own, settings) = (
        (Arc::clone(store), Arc::clone(&ledger), Arc::clone(&clock)),
        RostersSettings::default(),
    );
    let rosters = Rosters::start(own.0, own.1, own.2, settings, &loops).expect("a service");
    let sweeper = sweeper.expect("a janitor");
    rosters.follow(&sweeper);
    let jwt = None;
    Parts {
        loops,
        sweeper: Some(sweeper),
        rosters: Some(RosterParts { rosters, ledger, jwt }),
        ..Parts::new(Arc::clone(store), clock)
    }
}

pub async fn open() -> Daemon {
    Daemon::of(parts(&store()), Settings::default()).await
}

/// As [`open`], on [`store_at_rest`]. A stall of the machine for two seconds would otherwise be a gap, after which the group
/// is unsettled and grants no free lease for its longest ttl.
pub async fn open_at_rest() -> Daemon {
    Daemon::of(parts(&store_at_rest()), Settings::default()).await
}

/// A store whose time does not advance.
pub fn store_at_rest() -> Arc<dyn Store> {
    MemoryStore::new(StoreOptions::default(), clock_at_rest())
}

pub fn clock_at_rest() -> Arc<dyn Clock> {
    Arc::new(ManualClock::new(SystemClock::shared().wall_micros(), 1))
}

/// Sends a request that must succeed.
pub async fn act(daemon: &Daemon, method: &str, path: &str, body: Value) -> Value {
    let answer = daemon.send(method, path, body).await;
    assert!(answer.status.is_success(), "{method} {path}: {answer:?}");
    serde_json::from_str(&answer.text).unwrap_or(Value::Null)
}

/// Joins for long, and answers the tenure.
pub async fn join(daemon: &Daemon, group: &str, member: &str) -> String {
    daemon.join_for(group, member, 120_000).await
}

pub async fn claim(daemon: &Daemon, group: &str, registry: &str, key: &str, tenure: &str) {
    let path = format!("/v1/groups/{group}/registries/{registry}/claims/{key}");
    act(daemon, "PUT", &path, json!({ "tenure": tenure })).await;
}

/// Joins without a daemon, with labels.
pub async fn join_at(store: &Arc<dyn Store>, group: &Group, member: &str, labels: &[(&str, &str)]) -> String {
    let labels: BTreeMap<_, _> = labels
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let join = Join {
        member: MemberId::new(member).expect("a name"),
        ttl: LONG,
        labels: Labels::new(labels).expect("labels"),
    };
    let joined = store.join(group, &join, Call::default()).await.expect("a tenure");
    joined.tenure.to_string()
}
