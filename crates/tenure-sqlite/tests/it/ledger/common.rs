//! Short words for tests of a ledger in a file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tenure_core::clock::{ManualClock, SystemClock};
use tenure_core::ledger::{
    Candidates, EngagementOutcome, LogEntry, NewEngagement, OnlineOutcome, Provider, ProviderSpec, ReserveOutcome,
    Status,
};
use tenure_core::store::PageRequest;
use tenure_core::{Clock, EngagementId, Ledger, ProviderId, Result, RosterName, TenureId, Term};
use tenure_sqlite::SqliteLedger;

/// Where the virtual wall clock starts.
pub(crate) const START: u64 = 1_763_676_800_000_000;

pub(crate) const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn manual() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(START, 1))
}

pub(crate) fn system() -> Arc<dyn Clock> {
    SystemClock::shared()
}

pub(crate) fn open(path: &Path, clock: &Arc<ManualClock>) -> Arc<SqliteLedger> {
    SqliteLedger::open(path, Arc::clone(clock) as _).expect("the ledger opens")
}

/// The file as another program has it.
pub(crate) fn connect(path: &Path) -> Connection {
    Connection::open(path).expect("the file")
}

pub(crate) fn roster() -> RosterName {
    RosterName::new("care").expect("a name")
}

pub(crate) fn provider(name: &str) -> ProviderId {
    ProviderId::new(name).expect("a name")
}

pub(crate) fn numbered(n: usize) -> ProviderId {
    provider(&format!("p{n:04}"))
}

pub(crate) fn tenure(of: &ProviderId, term: u64) -> TenureId {
    TenureId::new(of.member(), Term::new(term).expect("a term"))
}

pub(crate) fn engagement(n: usize) -> EngagementId {
    EngagementId::new(format!("e{n}")).expect("a name")
}

pub(crate) async fn reserve(ledger: &SqliteLedger, n: usize, candidates: Candidates) -> Result<ReserveOutcome> {
    let new = NewEngagement::new(engagement(n));
    ledger.reserve(&roster(), &new, &candidates).await
}

pub(crate) async fn put(ledger: &SqliteLedger, name: &ProviderId, capacity: u32) -> Provider {
    let spec = ProviderSpec {
        display_name: None,
        capacity: Some(capacity).into(),
    };
    let put = ledger.put_provider(&roster(), name, &spec).await;
    put.expect("a provider").provider
}

/// Writes a provider down and takes it online under the term 7.
pub(crate) async fn online(ledger: &SqliteLedger, name: &ProviderId, capacity: u32) -> Provider {
    put(ledger, name, capacity).await;
    let tenure = tenure(name, 7);
    let online = ledger.go_online(&roster(), name, Some(&tenure)).await;
    match online.expect("an answer") {
        OnlineOutcome::Online(change) => change.provider,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn row(ledger: &SqliteLedger, name: &ProviderId) -> Provider {
    let row = ledger.provider(&roster(), name).await;
    row.expect("a look-up").expect("a provider")
}

pub(crate) async fn engage(ledger: &SqliteLedger, n: usize, of: &ProviderId) -> EngagementOutcome {
    let new = NewEngagement {
        engagement: engagement(n),
        provider: Some(of.clone()),
        status: Status::Active,
        expires_in: None,
        active_for: None,
    };
    let done = ledger.create_engagement(&roster(), &new).await;
    done.expect("an answer")
}

pub(crate) async fn log(ledger: &SqliteLedger) -> Vec<LogEntry> {
    let page = PageRequest {
        after: None,
        limit: 1_000,
    };
    ledger.log(&roster(), None, &page).await.expect("the log").items
}

/// Says that the mirror has everything, and answers how much that was.
pub(crate) async fn clean(ledger: &SqliteLedger) -> u64 {
    let dirty = ledger.dirty(&roster(), 1_000).await.expect("the outbox");
    let rows: Vec<_> = dirty.into_iter().map(|dirty| (dirty.provider, dirty.version)).collect();
    ledger.clean(&roster(), &rows).await.expect("an answer")
}

/// The provider of a reservation; `None` when no provider has room.
pub(crate) fn given(outcome: ReserveOutcome) -> Option<String> {
    match outcome {
        ReserveOutcome::Reserved(change) => Some(change.engagement.provider.expect("a provider").to_string()),
        ReserveOutcome::NoneAvailable => None,
        ReserveOutcome::Conflict(row) => panic!("{row:?}"),
    }
}
