//! Short words for tests on a real file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::{ManualClock, SystemClock};
use tenure_core::event::{Event, EventLog, EventQuery};
use tenure_core::id::{ConnectionId, SessionId};
use tenure_core::lease::{AcquireOutcome, LeaseStore, ReleaseOutcome, Token};
use tenure_core::membership::{Beat, BeatReply, EndBy, Join, Labels, MembershipStore, Revision};
use tenure_core::pulse::BeatPulse;
use tenure_core::registry::{ClaimMode, ClaimOutcome, RegistryStore};
use tenure_core::session::{Attach, AttachOutcome, Detach, DetachOutcome, How, Session, SessionStore};
use tenure_core::store::{Call, PageRequest, Store as _, StoreOptions};
use tenure_core::sweep::{
    BATCH, ReapedBatch, ReconcileRequest, ReleaseRequest, SweepReport, SweepRequest, SweepSteps, run_pass,
};
use tenure_core::{Clock, Group, Key, LeaseName, MemberId, RegistryName, Result, TenureId};
use tenure_sqlite::SqliteStore;

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

/// Opens the file. One that is not there yet begins as one whose wait is over ([`settled`]).
pub(crate) fn open(path: &Path, clock: &Arc<ManualClock>) -> Arc<SqliteStore> {
    if !path.exists() {
        settled(path);
    }
    SqliteStore::open(path, StoreOptions::default(), Arc::clone(clock) as _).expect("the store opens")
}

/// Makes a whole store that has waited, a day ago, for what its file may have forgotten.
pub(crate) fn settled(path: &Path) {
    let a_day_ago = Arc::new(ManualClock::new(START - 86_400_000_000, 1));
    drop(SqliteStore::open(path, StoreOptions::default(), a_day_ago).expect("the store opens"));
    tenure_testkit::wait::until("the file is closed", s(30), || tenure_sqlite::owner(path).is_none());
}

pub(crate) fn group() -> Group {
    Group::new("ingest").expect("a name")
}

pub(crate) fn devices() -> RegistryName {
    RegistryName::new("devices").expect("a name")
}

pub(crate) fn member(name: &str) -> MemberId {
    MemberId::new(name).expect("a name")
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).expect("a name")
}

pub(crate) fn joining(name: &str, ttl: Duration) -> Join {
    let labels = Labels::new(BTreeMap::from([("zone".to_owned(), "a".to_owned())])).expect("labels");
    Join {
        member: member(name),
        ttl,
        labels,
    }
}

pub(crate) async fn join(store: &SqliteStore, name: &str, ttl: Duration) -> TenureId {
    let joined = store.join(&group(), &joining(name, ttl), Call::default()).await;
    joined.expect("a join").tenure
}

pub(crate) async fn claim(store: &SqliteStore, tenure: &TenureId, name: &str) -> Result<ClaimOutcome> {
    let keys = [key(name)];
    let claimed = store
        .claim(&group(), &devices(), tenure, &keys, ClaimMode::Take, Call::default())
        .await;
    claimed.map(|mut claimed| claimed.outcomes.remove(0))
}

pub(crate) async fn beat(store: &SqliteStore, tenure: &TenureId) -> BeatReply {
    let beats = [Beat {
        tenure: tenure.clone(),
        ttl: None,
        revision: tenure_core::membership::Revision::NONE,
        seen: tenure_core::membership::Revision::NONE,
    }];
    store.beat(&group(), &beats).await.expect("a beat").replies[0]
}

pub(crate) async fn events(store: &SqliteStore) -> Vec<Event> {
    let query = EventQuery {
        after: None,
        limit: 1_000,
        ..EventQuery::default()
    };
    store.events(&group(), &query).await.expect("events").events
}

pub(crate) fn lease(name: &str) -> LeaseName {
    LeaseName::new(name).expect("a name")
}

pub(crate) async fn acquire(store: &SqliteStore, tenure: &TenureId, name: &str) -> AcquireOutcome {
    let acquired = store.acquire(&group(), tenure, &[lease(name)], Call::default()).await;
    acquired.expect("an answer").outcomes.remove(0)
}

/// A lease that is free.
pub(crate) async fn granted(store: &SqliteStore, tenure: &TenureId, name: &str) -> Token {
    match acquire(store, tenure, name).await {
        AcquireOutcome::Granted { token, .. } => token,
        other => panic!("{name} for {tenure}: {other:?}"),
    }
}

pub(crate) async fn release(
    store: &SqliteStore,
    tenure: &TenureId,
    name: &str,
    token: Token,
    to: Option<&str>,
) -> ReleaseOutcome {
    let (group, given, to) = (group(), [(lease(name), token)], to.map(member));
    let done = store.release_leases(&group, tenure, &given, to.as_ref(), Call::default());
    done.await.expect("an answer").outcomes.remove(0)
}

/// The holder of a lease with its token, and whether it is alive.
pub(crate) async fn holder(store: &SqliteStore, name: &str) -> Option<(TenureId, Token, bool)> {
    let seen = store.lease_of(&group(), &lease(name)).await.expect("a look-up");
    seen.map(|seen| (seen.tenure, seen.token, seen.alive))
}

/// What a tenure holds, by name, and the revision of it.
pub(crate) async fn held(store: &SqliteStore, tenure: &TenureId) -> (Vec<String>, Revision) {
    let page = PageRequest {
        after: None,
        limit: 1_000,
    };
    let held = store.held_leases(&group(), tenure, &page).await.expect("a page");
    let names = held.page.items.into_iter().map(|lease| lease.lease.to_string());
    (names.collect(), held.revision)
}

/// Beats the pulse: the store takes beats now.
pub(crate) async fn serve(store: &SqliteStore) {
    store.beat_pulse(BeatPulse::default()).await.expect("a pulse");
}

/// Lets time pass while the store serves.
pub(crate) async fn pass(store: &SqliteStore, clock: &ManualClock, time: Duration) {
    let mut left = time;
    serve(store).await;
    while !left.is_zero() {
        let status = store.tick(&group()).await.expect("a tick");
        let step = (status.gap / 3).min(left);
        clock.advance(step);
        serve(store).await;
        left -= step;
    }
    store.tick(&group()).await.expect("a tick");
}

/// The owner of a key and whether it is alive.
pub(crate) async fn owner(store: &SqliteStore, name: &str) -> Option<(TenureId, bool)> {
    let claim = store
        .claim_of(&group(), &devices(), &key(name))
        .await
        .expect("a look-up");
    claim.map(|claim| (claim.tenure, claim.alive))
}

pub(crate) fn session(name: &str) -> SessionId {
    SessionId::new(name).expect("a name")
}

pub(crate) fn plain(of: &str, connection: &str) -> Attach {
    Attach::new(session(of), ConnectionId::new(connection).expect("a name"))
}

pub(crate) async fn attach(store: &SqliteStore, tenure: &TenureId, attach: &Attach) -> AttachOutcome {
    let asked = std::slice::from_ref(attach);
    let attached = store.attach(&group(), tenure, asked, Call::default()).await;
    attached.expect("an answer").outcomes.remove(0)
}

/// Attaches where nothing stands in the way.
pub(crate) async fn attached(store: &SqliteStore, tenure: &TenureId, asked: &Attach) -> (How, Session) {
    match attach(store, tenure, asked).await {
        AttachOutcome::Attached { how, session } => (how, *session),
        other => panic!("{asked:?} for {tenure}: {other:?}"),
    }
}

pub(crate) async fn detach(store: &SqliteStore, tenure: &TenureId, of: &str, connection: &str) -> DetachOutcome {
    let asked = [Detach {
        session: session(of),
        connection: ConnectionId::new(connection).expect("a name"),
        epoch: None,
    }];
    let detached = store.detach(&group(), tenure, &asked, Call::default()).await;
    detached.expect("an answer").remove(0)
}

pub(crate) async fn seen(store: &SqliteStore, name: &str) -> Option<Session> {
    store.session(&group(), &session(name)).await.expect("a look-up")
}

/// Reaps once, without a limit that matters.
pub(crate) async fn reap(store: &SqliteStore, named: &str) -> ReapedBatch {
    let request = ReleaseRequest {
        pass: named.to_owned(),
        limit: BATCH,
        force: false,
    };
    store
        .reap(&group(), &request, Call::default())
        .await
        .expect("an answer")
}

/// Reconciles everything in parts of `limit`: what was repaired.
pub(crate) async fn reconcile(store: &SqliteStore, limit: u32) -> BTreeMap<String, u64> {
    let (mut after, mut repaired) = (None, BTreeMap::new());
    loop {
        let request = ReconcileRequest { after, limit };
        let part = store.reconcile(&group(), &request, Call::default()).await;
        let part = part.expect("a part");
        assert!(part.looked_at <= u64::from(limit), "{part:?}");
        for (kind, count) in part.repaired {
            *repaired.entry(kind).or_default() += count;
        }
        after = part.next;
        if after.is_none() {
            return repaired;
        }
    }
}

/// Lets time pass, with beats of these, until the group is settled.
pub(crate) async fn settle(store: &SqliteStore, clock: &ManualClock, tenures: &[&TenureId]) {
    while store.tick(&group()).await.expect("a tick").unsettled.is_some() {
        pass(store, clock, s(1)).await;
        for tenure in tenures {
            assert!(
                matches!(beat(store, tenure).await, BeatReply::Renewed { .. }),
                "{tenure}"
            );
        }
    }
}

/// How many rows each table has, but for what keeps the group and its log.
pub(crate) fn rows(path: &Path) -> BTreeMap<String, i64> {
    let sql = rusqlite::Connection::open(path).expect("the file");
    let mut tables = sql
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('meta', 'clock', 'events')")
        .expect("the schema");
    let names: Vec<String> = tables
        .query_map([], |row| row.get(0))
        .and_then(Iterator::collect)
        .expect("names");
    let count = |name: String| {
        let count = sql.query_row(&format!("SELECT count(*) FROM {name}"), [], |row| row.get(0));
        (name, count.expect("a count"))
    };
    names.into_iter().map(count).collect()
}

/// Runs a whole pass.
pub(crate) async fn sweep(store: &SqliteStore, request: SweepRequest, pass: &str) -> SweepReport {
    let report = run_pass(store, &group(), &request, pass, Call::default()).await;
    report.expect("a report")
}

pub(crate) async fn end(store: &SqliteStore, tenure: &TenureId, by: EndBy) {
    store.end(&group(), tenure, by, Call::default()).await.expect("an end");
}
