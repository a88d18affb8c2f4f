//! Probes: is the process alive, and can it do its work?

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::roster::Belief;
use tenure::wire::Readiness;
use tenure_core::store::Health;

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::extract::NoQuery;
use crate::reply::{Answer, json};

/// A loop that panics this often in a row is not coming back by itself.
const PANICS_IN_A_ROW: u32 = 5;
/// A loop may take this many of its intervals until it finishes something (a turn, or a visit that outlasts its turns), and
const STUCK_INTERVALS: u32 = 3;
/// this much more, before it counts as stuck: its calls of the store have timeouts of their own.
const STUCK_EXTRA: Duration = Duration::from_secs(30);

/// The most rosters that are told of.
const MAX_NOTES: usize = 100;

/// Is the process alive?
///
/// The runtime answers and the loops turn. Never asks the store: restarting the daemon would not bring it back.
#[utoipa::path(
    get, path = "/livez", tag = "daemon",
    security(()),
    responses(
        (status = 200, description = "It is", body = Readiness),
        (status = 503, description = "A loop is stuck or keeps panicking", body = Readiness)
    )
)]
pub(crate) async fn live(State(app): State<Arc<App>>, _: NoQuery) -> Answer {
    let mut reasons = Vec::new();
    for status in app.loops.snapshot() {
        if status.stuck_for > status.max_interval * STUCK_INTERVALS + STUCK_EXTRA {
            reasons.push(format!(
                "the loop {} has finished nothing for {} s",
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

/// Can it do its work?
///
/// The store takes writes, as of the last second, and the daemon is not on its way down. A node of a cluster that takes no
/// writes while others do, a roster that is `seeding`, and a ledger that does not answer are in the notes: everything else
/// works. Where tokens are required, a caller without one that may read everything gets the reason in one word.
#[utoipa::path(
    get, path = "/readyz", tag = "daemon",
    security(()),
    responses(
        (status = 200, description = "It can", body = Readiness),
        (status = 503, description = "It cannot, for these reasons", body = Readiness)
    )
)]
pub(crate) async fn ready(State(app): State<Arc<App>>, caller: Caller, _: NoQuery) -> Answer {
    let (mut reasons, mut notes) = (Vec::new(), roster_notes(&app));
    if app.draining.is_cancelled() {
        reasons.push("shutting down".to_owned());
    }
    match app.probe().await {
        Ok(away) => notes.extend(away.into_iter().take(MAX_NOTES).map(|why| format!("store: {why}"))),
        Err(why) => reasons.push(format!("store: {why}")),
    }
    if !(caller.may(Scope::Read) && caller.is_everywhere()) {
        // The rest names rosters, and places on the network.
        reasons.iter_mut().for_each(first_word);
        notes.iter_mut().for_each(first_word);
        notes.dedup();
    }
    readiness(reasons, notes)
}

/// What a stranger is told: `store`, `ledger`, `roster`.
fn first_word(said: &mut String) {
    let end = said.find([':', ' ']).unwrap_or(said.len());
    if said.contains(':') {
        said.truncate(end);
    }
}

/// What there is to say about rosters, without asking anybody.
fn roster_notes(app: &App) -> Vec<String> {
    let Some(rosters) = &app.rosters else {
        return Vec::new();
    };
    let status = rosters.status();
    let mut notes = Vec::new();
    if let Health::Down { reason } = &status.ledger {
        notes.push(format!("ledger: {reason}"));
    }
    if !status.discovered {
        notes.push("rosters: seeding; the ledger has not told yet which there are".to_owned());
    }
    let behind = status.rosters.iter().filter(|roster| roster.belief != Belief::Mirror);
    for roster in behind.take(MAX_NOTES) {
        let why = match roster.belief {
            Belief::Seeding => "seeding",
            _ => "the mirror is away or has not caught up",
        };
        notes.push(format!("roster {}: {why}; it answers from the ledger", roster.roster));
    }
    notes
}

fn readiness(reasons: Vec<String>, notes: Vec<String>) -> Answer {
    let ready = reasons.is_empty();
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    json(status, &Readiness { ready, reasons, notes })
}
