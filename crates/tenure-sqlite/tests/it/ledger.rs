//! The ledger on real files: the contract that every ledger is held to, races, other programs' statements, restarts, and
//! files that cannot be opened.

mod common;
mod file;
mod plain_sql;
mod racing;
mod restart;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::Ledger;
use tenure_core::clock::ManualClock;
use tenure_core::conformance::ledger::LedgerHarness;
use tenure_sqlite::SqliteLedger;

struct File {
    ledger: Arc<SqliteLedger>,
    clock: Arc<ManualClock>,
    // Removed when the case is over.
    _dir: tempfile::TempDir,
}

#[async_trait]
impl LedgerHarness for File {
    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::clone(&self.ledger) as Arc<dyn Ledger>
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

async fn make() -> Box<dyn LedgerHarness> {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = common::manual();
    let ledger = common::open(&dir.path().join("ledger.db"), &clock);
    Box::new(File {
        ledger,
        clock,
        _dir: dir,
    })
}

mod conformance {
    use super::make;

    tenure_core::ledger_conformance_tests!(make);
}
