//! The conformance suite over a middleware around the reference store: every call passes through unchanged.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::call::{Reply, StoreRequest};
use tenure_core::clock::{Clock, ManualClock};
use tenure_core::conformance::Harness;
use tenure_core::memory::MemoryStore;
use tenure_core::store::middleware::Middleware;
use tenure_core::store::{Store, StoreOptions};
use tenure_core::{Error, ErrorKind, Result};

/// Runs each call in its own task, so that it borrows nothing from its caller.
struct Elsewhere(Arc<dyn Store>);

impl Middleware for Elsewhere {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0)
    }

    async fn handle(&self, ask: StoreRequest) -> Result<Reply> {
        let broken = |error| Error::new(ErrorKind::Internal, "the task broke").because(error);
        let store = self.store();
        let call = async move { store.call(ask).await };
        tokio::spawn(call).await.map_err(broken)?
    }
}

struct Wrapped {
    clock: Arc<ManualClock>,
    store: Arc<dyn Store>,
}

#[async_trait::async_trait]
impl Harness for Wrapped {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

async fn wrapped(options: StoreOptions) -> Box<dyn Harness> {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000_000, 1));
    let inside = MemoryStore::new(options, Arc::clone(&clock) as Arc<dyn Clock>);
    let store = Arc::new(Elsewhere(inside));
    Box::new(Wrapped { clock, store })
}

tenure_core::conformance_tests!(wrapped, one_per_call);
tenure_core::roster_conformance_tests!(wrapped, one_per_call);
