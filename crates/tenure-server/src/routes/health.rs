//! Probes: liveness and readiness.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::roster::{Belief, Rosters};
use tenure::wire::Readiness;
use tenure_core::store::Health;

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::extract::NoQuery;
use crate::reply::{RouteResult, json};

/// A loop that panics this often in a row does not recover.
const PANICS_IN_A_ROW: u32 = 5;
/// A loop may take this many intervals to finish something (a turn, or a visit that outlives its turns),
const STUCK_INTERVALS: u32 = 3;
/// this much more, before it counts as stuck: its calls of the store have timeouts of their own.
const STUCK_EXTRA: Duration = Duration::from_secs(30);

/// How long a starting daemon may wait for its ledger before it is ready without it.
const LEDGER_START: Duration = Duration::from_secs(10);

/// The most rosters that are listed.
const MAX_NOTES: usize = 100;

/// Check liveness
///
/// The runtime answers and the loops make progress. Never depends on the store: a restart of the daemon would not repair it.
#[utoipa::path(
    get, path = "/livez", tag = "daemon",
    security(()),
    responses(
        (status = 200, description = "The process is alive", body = Readiness),
        (status = 503, description = "A loop is stuck or keeps panicking", body = Readiness)
    )
)]
pub(crate) async fn live(State(app): State<Arc<App>>, _: NoQuery) -> RouteResult {
    let mut reasons = Vec::new();
    for status in app.loops.snapshot() {
        if status.stuck_for > status.max_interval * STUCK_INTERVALS + STUCK_EXTRA {
            reasons.push(format!(
                "the loop {} has made no progress for {} s",
                status.name,
                status.stuck_for.as_secs()
            ));
        }
        if status.panics_in_a_row >= PANICS_IN_A_ROW {
            reasons.push(format!(
                "the loop {} panicked {} times in a row",
                status.name, status.panics_in_a_row
            ));
        }
    }
    readiness(reasons, Vec::new())
}

/// Check readiness
///
/// Ready: the store accepted a write within the last second, the ledger has answered since the start or is known to be away, and
/// the daemon is not shutting down. `notes` lists partial
/// failures: a cluster node that accepts no writes, a roster that is `seeding`, an unreachable ledger. If tokens are required,
/// reasons are one word for callers without an unrestricted read token.
#[utoipa::path(
    get, path = "/readyz", tag = "daemon",
    security(()),
    responses(
        (status = 200, description = "Ready", body = Readiness),
        (status = 503, description = "Not ready, for these reasons", body = Readiness)
    )
)]
pub(crate) async fn ready(State(app): State<Arc<App>>, caller: Caller, _: NoQuery) -> RouteResult {
    let (mut reasons, mut notes) = (Vec::new(), roster_notes(&app));
    if app.draining.is_cancelled() {
        reasons.push("shutting down".to_owned());
    }
    if waits_for_ledger(&app) {
        reasons.push("ledger: its schema and rosters are being read".to_owned());
    }
    match app.probe().await {
        Ok(away) => notes.extend(away.into_iter().take(MAX_NOTES).map(|why| format!("store: {why}"))),
        Err(why) => reasons.push(format!("store: {why}")),
    }
    notes.extend(
        app.store_warnings
            .get()
            .iter()
            .map(|warning| format!("store: {warning}")),
    );
    if !(caller.may(Scope::Read) && caller.is_everywhere()) {
        // The rest would reveal roster names and network addresses.
        reasons.iter_mut().for_each(first_word);
        notes.iter_mut().for_each(first_word);
        notes.dedup();
    }
    readiness(reasons, notes)
}

/// A reason for callers without a token: `store`, `ledger` or `roster`.
fn first_word(said: &mut String) {
    let end = said.find([':', ' ']).unwrap_or(said.len());
    if said.contains(':') {
        said.truncate(end);
    }
}

/// Whether the daemon has just started, and its ledger has neither answered nor failed.
fn waits_for_ledger(app: &App) -> bool {
    let is_young = app.clock.mono().since(app.began) < LEDGER_START;
    let status = app.rosters.as_ref().filter(|_| is_young).map(Rosters::status);
    status.is_some_and(|status| !status.discovered && status.ledger == Health::Up)
}

/// Notes on rosters, without I/O.
fn roster_notes(app: &App) -> Vec<String> {
    let Some(rosters) = &app.rosters else {
        return Vec::new();
    };
    let status = rosters.status();
    let mut notes = Vec::new();
    if let Health::Down { reason } = &status.ledger {
        notes.push(format!("ledger: {reason}"));
    }
    if let Some(why) = &status.hot_store_refused {
        notes.push(format!("ledger: {why}"));
    }
    if !status.discovered {
        notes.push("rosters: seeding; the ledger has not listed them yet".to_owned());
    }
    let behind = status.rosters.iter().filter(|roster| roster.belief != Belief::Mirror);
    for roster in behind.take(MAX_NOTES) {
        let why = match roster.belief {
            Belief::Seeding => "seeding",
            _ => "the mirror is down or has not caught up",
        };
        notes.push(format!("roster {}: {why}; it answers from the ledger", roster.roster));
    }
    notes
}

fn readiness(reasons: Vec<String>, notes: Vec<String>) -> RouteResult {
    let ready = reasons.is_empty();
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    json(status, &Readiness { ready, reasons, notes })
}
