//! The reference store passes the suite that it defines.
#![cfg(feature = "conformance")]

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::{Clock, ManualClock};
use tenure_core::conformance::Harness;
use tenure_core::memory::MemoryStore;
use tenure_core::store::{Store, StoreOptions};

struct Memory {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
}

#[async_trait::async_trait]
impl Harness for Memory {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

async fn memory(options: StoreOptions) -> Box<dyn Harness> {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000_000, 1));
    let store = MemoryStore::new(options, Arc::clone(&clock) as Arc<dyn Clock>);
    Box::new(Memory { clock, store })
}

tenure_core::conformance_tests!(memory);
