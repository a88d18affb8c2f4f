//! The shared contract, on both servers, under a clock that the suite turns; also in a cluster, and for a user who may do
//! no more than `docs/stores.md` tells to allow.

#[path = "conformance/cluster.rs"]
mod cluster;
#[path = "conformance/least.rs"]
mod least;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::SystemClock;
use tenure_core::conformance::Harness;
use tenure_core::store::{Store, StoreOptions};
use tenure_testkit::valkey::{Flavour, Server};
use tenure_valkey::{ConnectionOptions, ValkeyStore};

/// Where a case begins: after the marker's birth by more than any ttl, so that no group looks like lost data.
const BEGIN: u64 = 1_763_676_800_000_000;

struct Real {
    server: Server,
    store: Arc<ValkeyStore>,
    /// Since the beginning, in ns: steps below 1 µs add up.
    passed: AtomicU64,
}

#[async_trait]
impl Harness for Real {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    async fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).expect("cases take less than 500 years");
        let passed = self.passed.fetch_add(by, Ordering::SeqCst) + by;
        let now = (BEGIN + passed / 1000).to_string();
        self.server
            .cli(&["SET", "tenure:test:now", &now])
            .expect("the clock is set");
    }
}

fn connection() -> ConnectionOptions {
    ConnectionOptions {
        test_clock: true,
        request_timeout: Duration::from_secs(20),
        connect_timeout: Duration::from_secs(10),
        ..ConnectionOptions::default()
    }
}

async fn harness(flavour: Flavour, options: StoreOptions) -> Box<dyn Harness> {
    harness_for(flavour, options, Server::url).await
}

/// For whoever the server's URL names, once the server is there.
async fn harness_for(flavour: Flavour, options: StoreOptions, url: fn(&Server) -> String) -> Box<dyn Harness> {
    let server = Server::start(flavour).expect("the conformance suite needs its servers");
    server
        .cli(&["HSET", "tenure:store", "born", "1"])
        .expect("an old marker");
    server
        .cli(&["SET", "tenure:test:now", &BEGIN.to_string()])
        .expect("the clock is set");
    let store = ValkeyStore::open(&url(&server), options, connection(), SystemClock::shared())
        .await
        .expect("a good URL");
    Box::new(Real {
        server,
        store,
        passed: AtomicU64::new(0),
    })
}

mod valkey {
    use super::{Flavour, Harness, StoreOptions, harness};

    async fn make(options: StoreOptions) -> Box<dyn Harness> {
        harness(Flavour::Valkey, options).await
    }

    tenure_core::conformance_tests!(make);
    tenure_core::roster_conformance_tests!(make);
}

mod redis {
    use super::{Flavour, Harness, StoreOptions, harness};

    async fn make(options: StoreOptions) -> Box<dyn Harness> {
        harness(Flavour::Redis, options).await
    }

    tenure_core::conformance_tests!(make);
    tenure_core::roster_conformance_tests!(make);
}
