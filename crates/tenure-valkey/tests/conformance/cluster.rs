//! The whole contract in a cluster of six nodes. One cluster serves all cases of a process, one after the other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::SystemClock;
use tenure_core::conformance::Harness;
use tenure_core::store::{Store, StoreOptions};
use tenure_testkit::valkey::Flavour;
use tenure_testkit::valkey::cluster::Cluster;
use tenure_valkey::ValkeyStore;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{BEGIN, connection};

/// A key on each of the primaries, from which the scripts take their time.
const CLOCKS: [&str; 3] = ["tenure:test:now", "tenure:test:now:1", "tenure:test:now:2"];

struct InCluster {
    cluster: OwnedMutexGuard<Cluster>,
    store: Arc<ValkeyStore>,
    passed: AtomicU64,
}

impl InCluster {
    fn set(cluster: &Cluster, now: u64) {
        for (node, clock) in [1, 0, 2].into_iter().zip(CLOCKS) {
            let reply = cluster.nodes()[node].cli(&["SET", clock, &now.to_string()]);
            assert_eq!(reply.expect("the node answers").text(), "OK", "{clock}");
        }
    }
}

#[async_trait]
impl Harness for InCluster {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    async fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).expect("cases take less than 500 years");
        let passed = self.passed.fetch_add(by, Ordering::SeqCst) + by;
        Self::set(&self.cluster, BEGIN + passed / 1000);
    }
}

async fn make(options: StoreOptions) -> Box<dyn Harness> {
    // Random histories are hundreds of cases, and a cluster takes two seconds to form.
    static CLUSTER: OnceLock<Arc<Mutex<Cluster>>> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(|| {
        let cluster = Cluster::start(Flavour::Valkey, &[]).expect("the conformance suite needs its servers");
        cluster.take_for_dead_after(Duration::from_secs(30));
        Arc::new(Mutex::new(cluster))
    });
    let cluster = Arc::clone(cluster).lock_owned().await;
    for node in &cluster.nodes()[..3] {
        assert_eq!(node.cli(&["FLUSHALL"]).expect("the node answers").text(), "OK");
    }
    let marker = "{tenure:ingest}:store";
    cluster.run_on(marker, &["HSET", marker, "born", "1"]);
    InCluster::set(&cluster, BEGIN);
    let store = ValkeyStore::open(&cluster.url(), options, connection(), SystemClock::shared())
        .await
        .expect("a good URL");
    Box::new(InCluster {
        cluster,
        store,
        passed: AtomicU64::new(0),
    })
}

tenure_core::conformance_tests!(make);
tenure_core::roster_conformance_tests!(make);
