//! The contract in a cluster of six nodes. All cases of a process share one cluster, one after the other.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure_core::clock::SystemClock;
use tenure_core::conformance::Harness;
use tenure_core::store::StoreOptions;
use tenure_testkit::valkey::Flavour;
use tenure_testkit::valkey::cluster::Cluster;
use tenure_valkey::ValkeyStore;
use tokio::sync::Mutex;

use super::{Clock, Real, Servers, connection};

/// A clock key on each primary, and the node that has it.
const CLOCKS: [(&str, usize); 3] = [
    ("tenure:test:now", 1),
    ("tenure:test:now:1", 0),
    ("tenure:test:now:2", 2),
];

impl Servers for Cluster {
    fn run_on(&self, key: &str, command: &[&str]) {
        Cluster::run_on(self, key, command);
    }
}

async fn make(options: StoreOptions) -> Box<dyn Harness> {
    // Random histories are hundreds of cases, and a cluster takes two seconds to form.
    static CLUSTER: OnceLock<Arc<Mutex<Cluster>>> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(|| {
        let cluster = Cluster::start(Flavour::Valkey, &[]).expect("the conformance suite needs its servers");
        cluster.set_node_timeout(Duration::from_secs(30));
        Arc::new(Mutex::new(cluster))
    });
    let cluster = Arc::clone(cluster).lock_owned().await;
    for node in &cluster.nodes()[..3] {
        assert_eq!(node.cli(&["FLUSHALL"]).expect("the node answers").text(), "OK");
    }
    let marker = "{tenure:ingest}:store";
    cluster.run_on(marker, &["HSET", marker, "born", "1"]);
    let clock = Clock::begin(CLOCKS.map(|(key, node)| (key, &cluster.nodes()[node])));
    let store = ValkeyStore::open(&cluster.url(), options, connection(), SystemClock::shared())
        .await
        .expect("a good URL");
    Box::new(Real {
        store,
        clock: Mutex::new(clock),
        servers: cluster,
    })
}

tenure_core::conformance_tests!(make, one_per_call);
tenure_core::conformance_tests!(make, shared_leases);
tenure_core::conformance_tests!(make, waits);
tenure_core::roster_conformance_tests!(make, one_per_call);
