//! The contract of every store, held to by a client of a daemon: client → HTTP → daemon → reference store, on the store's
//! virtual clock.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::http::{HttpSettings, HttpStore};
use tenure_core::call::{Op, Reply, StoreRequest};
use tenure_core::clock::{Clock, ManualClock, SystemClock};
use tenure_core::conformance::Harness;
use tenure_core::error::Result;
use tenure_core::memory::MemoryStore;
use tenure_core::pulse::Pulsed;
use tenure_core::store::middleware::Middleware;
use tenure_core::store::{Store, StoreOptions};
use tenure_server::{Parts, Server, Settings};
use tokio::net::TcpListener;
use tokio::runtime::Handle;

/// 2026-01-01T00:00:00Z.
const START: u64 = 1_767_225_600_000_000;

struct OverHttp {
    clock: Arc<ManualClock>,
    behind: Arc<dyn Store>,
    client: Arc<dyn Store>,
    /// Goes down with the harness.
    _server: Server,
}

/// The store as the daemon has it: the suite decides when the pulse is beaten.
struct Without(Arc<dyn Store>);

impl Middleware for Without {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0)
    }

    async fn handle(&self, request: StoreRequest) -> Result<Reply> {
        match request.op {
            Op::BeatPulse(_) => Ok(Reply::BeatPulse(Pulsed::default())),
            _ => self.0.call(request).await,
        }
    }
}

async fn over_http(options: StoreOptions) -> Box<dyn Harness> {
    let clock = Arc::new(ManualClock::new(START, 7));
    let time = || Arc::clone(&clock) as Arc<dyn Clock>;
    let behind: Arc<dyn Store> = MemoryStore::new(options, time());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let parts = Parts::new(Arc::new(Without(Arc::clone(&behind))), SystemClock::shared());
    let server = Server::start(listener, parts, Settings::default(), std::future::pending()).expect("a server");
    let url = format!("http://{}", server.addr());
    // The client derives the store's time from this clock, so it must be the one that the suite advances. It may be advanced
    // far while a request is under way, which must not look like a daemon that does not answer.
    let patient = Duration::from_secs(100_000);
    let settings = HttpSettings {
        request_timeout: patient,
        connect_timeout: patient,
        sweep_timeout: patient,
        ..HttpSettings::default()
    };
    let client = HttpStore::new(&url, time(), Handle::current(), settings).expect("a client");
    Box::new(OverHttp {
        clock,
        behind,
        client: Arc::new(client),
        _server: server,
    })
}

#[async_trait]
impl Harness for OverHttp {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.client)
    }

    fn sweeper(&self) -> Arc<dyn Store> {
        Arc::clone(&self.behind)
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn resolution(&self) -> Duration {
        Duration::from_millis(1)
    }
}

tenure_core::conformance_tests!(over_http);
tenure_core::conformance_tests!(over_http, traces: tenure_testkit::spec::traces);
