//! The contract that every store is held to.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::ManualClock;
use tenure_core::conformance::Harness;
use tenure_core::store::{Store, StoreOptions};
use tenure_sqlite::SqliteStore;

struct File {
    store: Arc<SqliteStore>,
    clock: Arc<ManualClock>,
    // Removed when the case is over.
    _dir: tempfile::TempDir,
}

#[async_trait]
impl Harness for File {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn fails_over(&self) -> bool {
        false
    }
}

async fn make(options: StoreOptions) -> Box<dyn Harness> {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(ManualClock::new(1_763_676_800_000_000, 1));
    let path = dir.path().join("tenure.db");
    crate::common::settled(&path);
    let store = SqliteStore::open(path, options, Arc::clone(&clock) as _).expect("a store");
    Box::new(File {
        store,
        clock,
        _dir: dir,
    })
}

tenure_core::conformance_tests!(make);
tenure_core::conformance_tests!(make, shared_leases);
tenure_core::conformance_tests!(make, waits);
tenure_core::conformance_tests!(make, traces: tenure_testkit::spec::traces);
tenure_core::roster_conformance_tests!(make);
