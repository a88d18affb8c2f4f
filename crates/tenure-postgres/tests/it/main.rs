//! The ledger on a real Postgres: the conformance suite, directly and through a pooler; races; faults; the schema.

mod faults;
mod other_programs;
mod plain_sql;
mod pooler;
mod racing;
mod schema;
mod servers;
mod standby;
mod tls;
mod views;
mod words;

/// The conformance suite, directly on the server.
mod direct {
    use tenure_core::conformance::ledger::LedgerHarness;

    async fn make() -> Box<dyn LedgerHarness> {
        super::servers::harness(false).await
    }

    tenure_core::ledger_conformance_tests!(make);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_second_hot_store_is_refused() {
        tenure_core::conformance::ledger::liveness::a_second_hot_store_is_refused(&|| Box::pin(make())).await;
    }
}

/// The conformance suite through PgBouncer in transaction mode.
mod pooled {
    use tenure_core::conformance::ledger::LedgerHarness;

    async fn make() -> Box<dyn LedgerHarness> {
        super::servers::harness(true).await
    }

    tenure_core::ledger_conformance_tests!(make, one_per_call);
}
