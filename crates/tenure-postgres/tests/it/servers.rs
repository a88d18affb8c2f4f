//! A pooler shared by the tests of one process, and a ledger on a clock that a test controls.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tenure_core::Ledger;
use tenure_core::clock::{Clock, ManualClock, SystemClock};
use tenure_core::conformance::ledger::LedgerHarness;
use tenure_core::ledger::MemoryLedger;
use tenure_postgres::{PostgresLedger, PostgresOptions};
use tenure_testkit::postgres::{Endpoint, shared};
use tokio_postgres::{Client, NoTls};

use crate::pooler::Pooler;

static POOLER: Mutex<Weak<Pooler>> = Mutex::new(Weak::new());

/// The pooler in front of the shared server, kept while a test of this process uses it.
fn pooler(server: &Endpoint) -> Option<Arc<Pooler>> {
    let mut slot = POOLER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = slot.upgrade() {
        return Some(known);
    }
    let new = Arc::new(Pooler::start(server)?);
    *slot = Arc::downgrade(&new);
    Some(new)
}

/// A connection that bypasses the ledger.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// Time-outs that are long enough for a busy machine.
pub(crate) fn long_timeouts(url: &str) -> PostgresOptions {
    let mut options = PostgresOptions::new(url).expect("a good URL");
    options.call_timeout = Duration::from_secs(20);
    options.batch_timeout = Duration::from_secs(30);
    options.connect_timeout = Duration::from_secs(10);
    options
}

pub(crate) fn ledger(options: PostgresOptions) -> Arc<PostgresLedger> {
    PostgresLedger::new(options, SystemClock::shared())
}

/// One cell of one row.
pub(crate) async fn cell(client: &Client, statement: &str) -> String {
    let row = client
        .query_one(&format!("SELECT ({statement})::text"), &[])
        .await
        .expect("a row");
    row.try_get::<_, Option<String>>(0).expect("text").unwrap_or_default()
}

struct PostgresHarness {
    ledger: Arc<PostgresLedger>,
    admin: Client,
    _pooler: Option<Arc<Pooler>>,
}

const TURN: &str = "
    CREATE TABLE public.test_clock (at timestamptz NOT NULL);
    INSERT INTO public.test_clock VALUES ('2025-11-20 22:13:20+00');
    CREATE OR REPLACE FUNCTION tenure.ledger_now() RETURNS timestamptz LANGUAGE plpgsql VOLATILE
    AS $$ BEGIN RETURN (SELECT c.at FROM public.test_clock c); END $$;
";

/// A ledger in its own database with a stopped clock. Falls back to the reference ledger if Postgres is not installed,
/// which prints a message.
pub(crate) async fn harness(through_pooler: bool) -> Box<dyn LedgerHarness> {
    let reference = || {
        let clock = Arc::new(ManualClock::new(1_763_676_800_000_000, 1));
        let ledger = MemoryLedger::new(Arc::clone(&clock) as Arc<dyn Clock>);
        Box::new(MemoryHarness { clock, ledger })
    };
    let Some(server) = shared() else { return reference() };
    let database = server.database();
    let (mut url, mut pooler) = (database.clone(), None);
    if through_pooler {
        let Some(started) = self::pooler(server) else {
            return reference();
        };
        url = started.url(&database);
        pooler = Some(started);
    }
    let mut options = long_timeouts(&url);
    options.pool_size = 6;
    let ledger = ledger(options);
    ledger.prepare().await.expect("a schema");
    let admin = connect(&database).await;
    admin.batch_execute(TURN).await.expect("a clock");
    Box::new(PostgresHarness {
        ledger,
        admin,
        _pooler: pooler,
    })
}

#[async_trait::async_trait]
impl LedgerHarness for PostgresHarness {
    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::clone(&self.ledger) as Arc<dyn Ledger>
    }

    async fn advance(&self, by: Duration) {
        let turn = format!(
            "UPDATE public.test_clock SET at = at + interval '{} microseconds'",
            by.as_micros()
        );
        self.admin.batch_execute(&turn).await.expect("the clock");
    }
}

struct MemoryHarness {
    clock: Arc<ManualClock>,
    ledger: Arc<MemoryLedger>,
}

#[async_trait::async_trait]
impl LedgerHarness for MemoryHarness {
    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::clone(&self.ledger) as Arc<dyn Ledger>
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}
