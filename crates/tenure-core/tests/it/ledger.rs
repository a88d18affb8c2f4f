//! The conformance suite over the reference ledger.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::{Clock, ManualClock};
use tenure_core::conformance::ledger::LedgerHarness;
use tenure_core::ledger::{Ledger, MemoryLedger};

struct InMemory {
    clock: Arc<ManualClock>,
    ledger: Arc<MemoryLedger>,
}

#[async_trait::async_trait]
impl LedgerHarness for InMemory {
    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::clone(&self.ledger) as Arc<dyn Ledger>
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

async fn memory() -> Box<dyn LedgerHarness> {
    let clock = Arc::new(ManualClock::new(1_763_676_800_000_000, 1));
    let ledger = MemoryLedger::new(Arc::clone(&clock) as Arc<dyn Clock>);
    Box::new(InMemory { clock, ledger })
}

tenure_core::ledger_conformance_tests!(memory);

#[tokio::test]
async fn a_second_hot_store_is_refused() {
    tenure_core::conformance::ledger::liveness::a_second_hot_store_is_refused(&|| Box::pin(memory())).await;
}
