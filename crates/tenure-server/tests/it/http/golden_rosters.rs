//! The HTTP surface of rosters word for word: golden files.

use std::sync::Arc;
use std::time::Duration;

use tenure::loops::Loops;
use tenure::roster::{Rosters, RostersSettings};
use tenure_core::clock::{Clock, ManualClock};
use tenure_core::error::ErrorKind;
use tenure_core::ledger::{Ledger, MemoryLedger, ProviderSpec};
use tenure_core::store::Store;
use tenure_server::{Parts, RosterParts, Settings};
use tenure_testkit::wait::until_async;
use tokio::runtime::Handle;

use crate::common::faulty::{Faulty, Mood};
use crate::common::golden::{Golden, START};
use crate::common::{Daemon, PATIENCE};

/// A daemon with the roster `desk`, which has one provider, `zoe`.
async fn daemon(mood: Mood) -> (Daemon, Arc<ManualClock>) {
    let manual = Arc::new(ManualClock::new(START, 7));
    let clock: Arc<dyn Clock> = Arc::clone(&manual) as _;
    let store = Faulty::new(Arc::clone(&clock));
    store.be(mood);
    let store: Arc<dyn Store> = store;
    let ledger: Arc<dyn Ledger> = MemoryLedger::new(Arc::clone(&clock));
    let (desk, zoe) = ("desk".parse().unwrap(), "zoe".parse().unwrap());
    let put = ledger.put_provider(&desk, &zoe, &ProviderSpec::default()).await;
    assert!(put.unwrap().changed);
    let loops = Loops::new(Arc::clone(&clock), Handle::current());
    let parts = (Arc::clone(&store), Arc::clone(&ledger), Arc::clone(&clock));
    let rosters = Rosters::start(parts.0, parts.1, parts.2, RostersSettings::default(), &loops).unwrap();
    let parts = Parts {
        loops,
        rosters: Some(RosterParts {
            rosters,
            ledger,
            jwt: None,
        }),
        ..Parts::new(store, clock)
    };
    (Daemon::of(parts, Settings::default()).await, manual)
}

/// Waits until the roster answers from there.
async fn until_from(daemon: &Daemon, clock: &ManualClock, from: &str) {
    until_async(&format!("the roster answers from the {from}"), PATIENCE, || async {
        clock.advance(Duration::from_millis(10));
        let status = daemon.get("/v1/status").await.json();
        status["rosters"]["rosters"][0]["answers_from"] == from
    })
    .await;
}

#[tokio::test]
async fn rosters_from_the_mirror() {
    let (daemon, clock) = daemon(Mood::Good).await;
    until_from(&daemon, &clock, "mirror").await;
    Golden::of(daemon, clock).play("rosters/mirror").await;
}

#[tokio::test]
async fn rosters_from_the_ledger() {
    let (daemon, clock) = daemon(Mood::Fails(ErrorKind::Unavailable)).await;
    until_from(&daemon, &clock, "ledger").await;
    Golden::of(daemon, clock).play("rosters/ledger").await;
}

#[tokio::test]
async fn rosters_refuse() {
    let (daemon, clock) = daemon(Mood::Good).await;
    until_from(&daemon, &clock, "mirror").await;
    Golden::of(daemon, clock).play("rosters/refused").await;
}

#[tokio::test]
async fn rosters_without_a_ledger() {
    Golden::start().await.play("rosters/none").await;
}
