//! The daemon about itself and its store.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::loops::LoopStatus;
use tenure::wire::roster::{RostersState, TokensState};
use tenure::wire::{AccessState, Findings, LoopState, Now, ServerStatus, StoreState, ms};
use tenure_core::clock::within;
use tenure_core::store::{Finding, Health, Severity};
use tenure_core::time::StoreTime;

use super::openapi::Reads;
use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::extract::NoQuery;
use crate::front::overloaded;
use crate::reply::{Answer, json};
use crate::room::{Place, Share};

/// A status younger than this is not looked up again.
const FRESH: Duration = Duration::from_secs(1);
/// How long the doctor may take.
const EXAMINATION: Duration = Duration::from_secs(10);

/// How the daemon is
///
/// Answers also while the store is away: with what was seen last, and how long ago that was. A token that is for some groups
/// and rosters is told of these alone, and neither where the store is nor what is wrong with files of the daemon.
#[utoipa::path(
    get, path = "/v1/status", tag = "daemon",
    security(("token" = ["read"])),
    responses((status = 200, description = "Loops, store, groups", body = ServerStatus))
)]
pub(crate) async fn status(State(app): State<Arc<App>>, caller: Caller, _: NoQuery) -> Answer {
    // How far the look got shows in the ages.
    let look = within(&*app.clock, app.settings.request_timeout, app.look(FRESH));
    let (asked, _) = tokio::join!(app.now(), look);
    let now = app.clock.mono();
    let (groups, groups_total, listed) = app.watch.groups(now);
    let mut store = store_state(&app);
    if let Err(error) = asked {
        (store.up, store.reason) = (false, Some(error.chain()));
    }
    let mut status = ServerStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_ms: ms(now.since(app.began)),
        store,
        loops: app.loops.snapshot().into_iter().map(loop_state).collect(),
        groups,
        groups_total,
        rosters: rosters_state(&app),
        access: AccessState {
            scopes: scopes_of(&caller),
            ..access_state(&app)
        },
        groups_age_ms: listed.map(ms),
        streams: app.streams.held() as u64,
        requests: app.in_flight() as u64,
    };
    if !caller.is_everywhere() {
        narrow(&mut status, &caller);
    }
    json(StatusCode::OK, &status)
}

/// What stands in the place of words that may name what a narrow token is not for: places, files, groups.
const KEPT_BACK: &str = "(for whoever may read everything)";

/// Leaves out what the caller's token is not for.
fn narrow(status: &mut ServerStatus, caller: &Caller) {
    let keep_back = |words: &mut Option<String>| *words = words.take().map(|_| KEPT_BACK.to_owned());
    let place = |store: &mut StoreState| {
        KEPT_BACK.clone_into(&mut store.place);
        keep_back(&mut store.reason);
    };
    place(&mut status.store);
    (status.access.tokens_trouble, status.access.tls_trouble) = (None, None);
    status.groups.retain(|group| caller.sees_group(&group.state.group));
    status.groups_total = status.groups.len() as u64;
    if let Some(rosters) = &mut status.rosters {
        rosters.rosters.retain(|roster| caller.sees_roster(&roster.roster));
        rosters.rosters_total = rosters.rosters.len() as u64;
        place(&mut rosters.ledger);
        if let Some(tokens) = &mut rosters.tokens {
            tokens.trouble = None;
        }
    }
    for state in &mut status.loops {
        keep_back(&mut state.last_error);
    }
}

/// What the caller may do.
fn scopes_of(caller: &Caller) -> Vec<String> {
    let held = Scope::ALL.into_iter().filter(|scope| caller.may(*scope));
    held.map(|scope| scope.as_str().to_owned()).collect()
}

/// How the daemon finds out who is calling.
fn access_state(app: &App) -> AccessState {
    let tokens = app.guard.keeper().map(|keeper| keeper.status());
    AccessState {
        tokens: tokens.as_ref().map(|(count, _)| *count as u64),
        tokens_trouble: tokens.and_then(|(_, trouble)| trouble),
        tls: app.tls.is_some(),
        client_certificates: app.tls.as_ref().is_some_and(|tls| tls.asks_clients()),
        tls_trouble: app.tls.as_ref().and_then(|tls| tls.trouble()),
        ..AccessState::default()
    }
}

/// The store as far as is known without asking it: it says so itself, and it was heard of lately.
pub(crate) fn store_state(app: &App) -> StoreState {
    let (up, reason) = match app.store.health() {
        Health::Up if app.heard_of_store() => (true, None),
        Health::Up => (false, Some("it was not heard of for a while".to_owned())),
        Health::Down { reason } => (false, Some(reason)),
    };
    StoreState {
        place: app.store.place(),
        up,
        reason,
    }
}

/// The rosters as far as is known without asking anybody.
fn rosters_state(app: &App) -> Option<RostersState> {
    let (rosters, ledger) = (app.rosters.as_ref()?, app.ledger.as_ref()?);
    let tokens = app.jwt.as_ref().map(|verifier| {
        let status = verifier.status();
        TokensState {
            keys: status.keys as u64,
            trouble: status.trouble,
        }
    });
    Some(RostersState::new(rosters.status(), ledger.place(), tokens))
}

fn loop_state(status: LoopStatus) -> LoopState {
    LoopState {
        name: status.name,
        last_success: status.last_success_wall_micros.map(StoreTime::from_micros),
        last_success_age_ms: status.last_success_age.map(ms),
        runs: status.runs,
        failures: status.failures,
        panics: status.panics,
        bad_in_a_row: status.bad_in_a_row,
        last_error: status.last_error,
    }
}

/// The store's clock
#[utoipa::path(
    get, path = "/v1/now", tag = "daemon",
    security(("token" = ["read"]), ("token" = ["beat"]), ("token" = ["write"]), ("token" = ["operate"])),
    responses((status = 200, description = "Its time", body = Now), Reads)
)]
pub(crate) async fn now(State(app): State<Arc<App>>, _: NoQuery) -> Answer {
    json(StatusCode::OK, &Now { now: app.now().await? })
}

/// Look at what could hurt
///
/// Version, settings and permissions of the store, and of the ledger if there is one. Never fails; what cannot be looked at is a finding.
#[utoipa::path(
    get, path = "/v1/doctor", tag = "daemon",
    security(("token" = ["read", "everywhere"])),
    responses((status = 200, description = "The findings", body = Findings))
)]
pub(crate) async fn doctor(State(app): State<Arc<App>>, share: Share, _: NoQuery) -> Answer {
    let _place = Place::enter(&app, |app| &app.requests, share).ok_or_else(overloaded)?;
    let silent = |what: &str, place: String| {
        let message = format!("the {what} at {place} does not answer");
        vec![Finding::new(what, Severity::Error, message)]
    };
    let store = async {
        let findings = within(&*app.clock, EXAMINATION, app.store.examine()).await;
        findings.unwrap_or_else(|| silent("store", app.store.place()))
    };
    let ledger = async {
        let Some(ledger) = &app.ledger else {
            return Vec::new();
        };
        let findings = within(&*app.clock, EXAMINATION, ledger.examine()).await;
        findings.unwrap_or_else(|| silent("ledger", ledger.place()))
    };
    let (mut findings, of_ledger) = tokio::join!(store, ledger);
    findings.extend(of_ledger.into_iter().map(|finding| finding.of("ledger")));
    findings.extend(key_trouble(&app));
    findings.extend(access_trouble(&app));
    json(StatusCode::OK, &Findings { findings })
}

/// Tokens and certificates that are in their files and are not used.
fn access_trouble(app: &App) -> Vec<Finding> {
    let access = access_state(app);
    let warn = |check: &str, what: &str, trouble: Option<String>| {
        let trouble = trouble?;
        Some(Finding::new(
            check,
            Severity::Warning,
            format!("{what} as before: {trouble}"),
        ))
    };
    let tokens = warn("tokens", "the tokens of callers are", access.tokens_trouble);
    let tls = warn("tls", "the certificate is", access.tls_trouble);
    tokens.into_iter().chain(tls).collect()
}

/// Keys that are in the file and are not used.
fn key_trouble(app: &App) -> Option<Finding> {
    let trouble = app.jwt.as_ref()?.status().trouble?;
    let message = format!("the keys for the tokens of providers stay as they were: {trouble}");
    Some(Finding::new("tokens", Severity::Warning, message))
}
