//! The status of the daemon and its store.

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

use super::openapi::ReadErrors;
use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::exposed;
use crate::extract::NoQuery;
use crate::middleware::overloaded;
use crate::reply::{RouteResult, json};
use crate::room::{Permit, Share};

/// How long a status is cached.
const FRESH: Duration = Duration::from_secs(1);
/// The time limit of the doctor.
const EXAMINATION: Duration = Duration::from_secs(10);

/// Get the status of the daemon
///
/// Works while the store is down, with the last known state and its age. A token that is restricted to groups and rosters sees
/// only those, not the address of the store, and no errors of the daemon's files.
#[utoipa::path(
    get, path = "/v1/status", tag = "daemon",
    security(("token" = ["read"])),
    responses((status = 200, description = "Loops, store, groups", body = ServerStatus))
)]
pub(crate) async fn status(State(app): State<Arc<App>>, caller: Caller, _: NoQuery) -> RouteResult {
    // Groups that could not be read show in their ages.
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

/// Replaces text that may name things a restricted token must not see: addresses, files, groups.
const KEPT_BACK: &str = "(hidden: needs an unrestricted read token)";

/// Removes what the caller's token may not see.
fn narrow(status: &mut ServerStatus, caller: &Caller) {
    let keep_back = |words: &mut Option<String>| *words = words.take().map(|_| KEPT_BACK.to_owned());
    let place = |store: &mut StoreState| {
        KEPT_BACK.clone_into(&mut store.place);
        keep_back(&mut store.reason);
        store.warnings.clear();
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

/// The scopes of the caller.
fn scopes_of(caller: &Caller) -> Vec<String> {
    let held = Scope::ALL.into_iter().filter(|scope| caller.may(*scope));
    held.map(|scope| scope.as_str().to_owned()).collect()
}

/// The authentication settings, and their errors.
fn access_state(app: &App) -> AccessState {
    let tokens = app.guard.token_file().map(|token_file| token_file.status());
    AccessState {
        tokens: tokens.as_ref().map(|(count, _)| *count as u64),
        tokens_trouble: tokens.and_then(|(_, trouble)| trouble),
        tls: app.tls.is_some(),
        client_certificates: app.tls.as_ref().is_some_and(|tls| tls.asks_clients()),
        tls_trouble: app.tls.as_ref().and_then(|tls| tls.trouble()),
        ..AccessState::default()
    }
}

/// The store as of its last answers, without I/O.
pub(crate) fn store_state(app: &App) -> StoreState {
    let (up, reason) = match app.store.health() {
        Health::Up if app.store_answered_lately() => (true, None),
        Health::Up => (false, Some("it has not answered recently".to_owned())),
        Health::Down { reason } => (false, Some(reason)),
    };
    StoreState {
        place: app.store.place(),
        up,
        reason,
        warnings: app.store_warnings.get(),
    }
}

/// The rosters, without I/O.
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

/// Get the store's time
#[utoipa::path(
    get, path = "/v1/now", tag = "daemon",
    security(("token" = ["read"]), ("token" = ["beat"]), ("token" = ["write"]), ("token" = ["operate"])),
    responses((status = 200, description = "The store's time", body = Now), ReadErrors)
)]
pub(crate) async fn now(State(app): State<Arc<App>>, _: NoQuery) -> RouteResult {
    json(StatusCode::OK, &Now { now: app.now().await? })
}

/// Diagnose the store and the ledger
///
/// Checks their version, settings and permissions. Never fails: a check that cannot run is a finding.
#[utoipa::path(
    get, path = "/v1/doctor", tag = "daemon",
    security(("token" = ["read", "everywhere"])),
    responses((status = 200, description = "The findings", body = Findings))
)]
pub(crate) async fn doctor(State(app): State<Arc<App>>, share: Share, _: NoQuery) -> RouteResult {
    let _place = Permit::enter(&app, |app| &app.requests, share).ok_or_else(overloaded)?;
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
        let examining = tenure::ledger::examine(&**ledger, &*app.store);
        let findings = within(&*app.clock, EXAMINATION, examining).await;
        findings.unwrap_or_else(|| silent("ledger", ledger.place()))
    };
    let (mut findings, of_ledger) = tokio::join!(store, ledger);
    findings.extend(of_ledger.into_iter().map(|finding| finding.of("ledger")));
    findings.extend(key_trouble(&app));
    findings.extend(access_trouble(&app));
    let looked = {
        let app = Arc::clone(&app);
        tokio::task::spawn_blocking(move || exposed::findings(&app.settings, &app.store.place())).await
    };
    findings.extend(looked.unwrap_or_default());
    json(StatusCode::OK, &Findings { findings })
}

/// Token and certificate files that are invalid and not in use.
fn access_trouble(app: &App) -> Vec<Finding> {
    let access = access_state(app);
    let warn = |check: &str, what: &str, trouble: Option<String>| {
        let trouble = trouble?;
        Some(Finding::new(
            check,
            Severity::Warning,
            format!("{what} unchanged: {trouble}"),
        ))
    };
    let tokens = warn("tokens", "the tokens are", access.tokens_trouble);
    let tls = warn("tls", "the certificate is", access.tls_trouble);
    tokens.into_iter().chain(tls).collect()
}

/// A key file that is invalid and not in use.
fn key_trouble(app: &App) -> Option<Finding> {
    let trouble = app.jwt.as_ref()?.status().trouble?;
    let message = format!("the keys of providers' tokens are unchanged: {trouble}");
    Some(Finding::new("tokens", Severity::Warning, message))
}
