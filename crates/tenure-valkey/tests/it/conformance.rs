//! The shared contract on both servers, on a clock that the suite controls; also in a cluster, and for a user with only
//! the permissions that `docs/stores.md` lists.

mod cluster;
mod least;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::SystemClock;
use tenure_core::conformance::Harness;
use tenure_core::store::{Store, StoreOptions};
use tenure_testkit::resp::Client;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_valkey::{ConnectionOptions, ValkeyStore};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// The start of a case: later than the marker's birth by more than any ttl, so that no group looks like lost data.
const BEGIN: u64 = 1_763_676_800_000_000;

/// The clock of the scripts: a key on each server of a store.
struct Clock {
    keys: Vec<(&'static str, Client)>,
    /// Time since the start, in ns: steps below 1 µs add up.
    passed: u64,
}

impl Clock {
    /// Starts at [`BEGIN`] on these servers.
    fn begin<'a>(keys: impl IntoIterator<Item = (&'static str, &'a Server)>) -> Self {
        let keys = keys.into_iter();
        let mut clock = Self {
            keys: keys
                .map(|(key, server)| (key, server.client().expect("the server accepts")))
                .collect(),
            passed: 0,
        };
        clock.advance(Duration::ZERO);
        clock
    }

    fn advance(&mut self, by: Duration) {
        self.passed += u64::try_from(by.as_nanos()).expect("cases take less than 500 years");
        let now = (BEGIN + self.passed / 1000).to_string();
        for (key, client) in &mut self.keys {
            let reply = client.call(&["SET", key, &now]).expect("the server answers");
            assert_eq!(reply.text(), "OK", "{key}");
        }
    }
}

/// A store on servers that the cases of a process share, one after the other.
struct Real<S> {
    store: Arc<ValkeyStore>,
    clock: Mutex<Clock>,
    servers: OwnedMutexGuard<S>,
}

/// Commands that bypass the store.
trait Servers: Send + Sync + 'static {
    /// Runs a command on the node of a key.
    fn run_on(&self, key: &str, command: &[&str]);

    /// Deletes all data, and the marker with it. `false` where no case needs it.
    fn flush(&self) -> bool {
        false
    }
}

impl Servers for Server {
    fn run_on(&self, _: &str, command: &[&str]) {
        self.cli(command).expect("the server answers");
    }

    fn flush(&self) -> bool {
        self.run_on("", &["FLUSHALL"]);
        true
    }
}

#[async_trait]
impl<S: Servers> Harness for Real<S> {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    async fn advance(&self, by: Duration) {
        self.clock.lock().await.advance(by);
    }

    async fn lose_data(&self) -> bool {
        let mut clock = self.clock.lock().await;
        let flushed = self.servers.flush();
        clock.advance(Duration::ZERO);
        flushed
    }

    async fn lose_list(&self) {
        self.servers.run_on("tenure:groups", &["DEL", "tenure:groups"]);
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

/// A harness for the user in the server's URL.
async fn harness_for(flavour: Flavour, options: StoreOptions, url: fn(&Server) -> String) -> Box<dyn Harness> {
    // Random histories are hundreds of cases.
    static SERVERS: [OnceLock<Arc<Mutex<Server>>>; 2] = [OnceLock::new(), OnceLock::new()];
    let slot = &SERVERS[usize::from(flavour == Flavour::Redis)];
    let server = slot.get_or_init(|| {
        let server = Server::start(flavour).expect("the conformance suite needs its servers");
        Arc::new(Mutex::new(server))
    });
    let server = Arc::clone(server).lock_owned().await;
    let run = |command: &[&str]| server.cli(command).expect("the server answers");
    assert_eq!(run(&["FLUSHALL"]).text(), "OK");
    // An old marker.
    run(&["HSET", "tenure:store", "born", "1"]);
    let clock = Clock::begin([("tenure:test:now", &*server)]);
    let store = ValkeyStore::open(&url(&server), options, connection(), SystemClock::shared())
        .await
        .expect("a good URL");
    Box::new(Real {
        store,
        clock: Mutex::new(clock),
        servers: server,
    })
}

mod valkey {
    use super::{Flavour, Harness, StoreOptions, harness};

    async fn make(options: StoreOptions) -> Box<dyn Harness> {
        harness(Flavour::Valkey, options).await
    }

    tenure_core::conformance_tests!(make);
    tenure_core::conformance_tests!(make, shared_leases);
    tenure_core::conformance_tests!(make, waits);
    tenure_core::conformance_tests!(make, traces: tenure_testkit::spec::traces);
    tenure_core::roster_conformance_tests!(make);
}

mod redis {
    use super::{Flavour, Harness, StoreOptions, harness};

    async fn make(options: StoreOptions) -> Box<dyn Harness> {
        harness(Flavour::Redis, options).await
    }

    tenure_core::conformance_tests!(make);
    tenure_core::conformance_tests!(make, shared_leases);
    tenure_core::conformance_tests!(make, waits);
    tenure_core::conformance_tests!(make, traces: tenure_testkit::spec::traces);
    tenure_core::roster_conformance_tests!(make);
}
