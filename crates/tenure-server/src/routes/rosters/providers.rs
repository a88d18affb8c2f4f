//! Providers: put, remove, online, offline, activate, deactivate, heartbeat.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use tenure::roster::{HeartbeatOutcome, Online, Removal, Roster, Written};
use tenure::wire::roster::{HeartbeatAnswer, NoFields, Provider};
use tenure::wire::{Code, MIRRORED, Problem};
use tenure_core::error::{Error, ErrorKind};
use tenure_core::id::{ProviderId, RosterName};
use tenure_core::ledger::{self as core, ProviderSpec};

use super::gate::{self, admit, deactivated, revoked, unknown};
use crate::app::App;
use crate::auth::Caller;
use crate::extract::{NoQuery, NotAfter, OptionalJson, PathParams};
use crate::reply::{Failure, RouteResult, json, no_content};
use crate::routes::openapi::{NotFound, OperatorErrors, ProviderErrors};

/// Create or change a provider
///
/// A new provider is active and offline. Omitted fields do not change. Idempotent.
#[utoipa::path(
    put, path = "/v1/rosters/{r}/providers/{p}", tag = "rosters",
    security(("token" = ["write"])),
    request_body(content = Option<ProviderSpec>, description = "May be left out"),
    responses((status = 200, description = "The provider now", body = Written<Provider>), OperatorErrors)
)]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    PathParams((name, provider)): PathParams<(RosterName, ProviderId)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    OptionalJson(spec): OptionalJson<ProviderSpec>,
) -> RouteResult {
    let roster = app.roster(&name)?;
    spec.check()?;
    let writer = roster.clone();
    let work = async move { writer.put_provider(&provider, &spec).await };
    let written = app.write_in(call, work).await?;
    tell(&name, &written, "provider put");
    shown(&app, &roster, written).await
}

/// Remove a provider
///
/// It must be offline and have no open engagement. Its log and past engagements stay. The header `Tenure-Mirrored` says
/// whether the hot store was updated.
#[utoipa::path(
    delete, path = "/v1/rosters/{r}/providers/{p}", tag = "rosters",
    security(("token" = ["operate"])),
    responses(
        (status = 204, description = "Removed", headers(("Tenure-Mirrored" = String, description = "Whether the hot store was updated"))),
        OperatorErrors, NotFound,
        (status = 409, description = "`provider_busy`, `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    PathParams((name, provider)): PathParams<(RosterName, ProviderId)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
) -> RouteResult {
    let (roster, whom) = (app.roster(&name)?, provider.clone());
    match app
        .write_in(call, async move { roster.remove_provider(&whom).await })
        .await?
    {
        Removal::Removed { mirrored } => {
            tracing::info!(roster = %name, %provider, mirrored, "provider removed");
            let mut response = no_content();
            let value = HeaderValue::from_static(if mirrored { "true" } else { "false" });
            response.headers_mut().insert(HeaderName::from_static(MIRRORED), value);
            Ok(response)
        }
        Removal::Absent => Err(unknown(&name, &provider)),
        Removal::Busy(row) => {
            let state = if row.online.is_some() { "online" } else { "engaged" };
            let message = format!("{provider} is {state}; take it offline and end its engagements first");
            let problem = Problem::new(Code::ProviderBusy, message);
            let alive = row.online.is_some();
            Err(problem.with_provider(Provider::new(row, alive)).into())
        }
    }
}

/// Go online
///
/// Counts as a heartbeat in the same step. Idempotent. While the hot store is down, the provider is online in the ledger
/// (`mirrored: false`).
#[utoipa::path(
    post, path = "/v1/rosters/{r}/providers/{p}/online", tag = "rosters",
    security(("token" = ["beat"]), ("provider" = [])),
    request_body(content = Option<NoFields>, description = "May be left out"),
    responses((status = 200, description = "The provider now", body = Written<Provider>), ProviderErrors)
)]
pub(crate) async fn online(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathParams((name, provider)): PathParams<(RosterName, ProviderId)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    OptionalJson(NoFields {}): OptionalJson<NoFields>,
) -> RouteResult {
    let issued_at = gate::provider(&app, &caller, &name, &provider)?;
    let roster = app.roster(&name)?;
    admit(&app, &roster, &provider, issued_at).await?;
    let (writer, whom) = (roster.clone(), provider.clone());
    let outcome = app.write_in(call, async move { writer.online(&whom).await }).await;
    match outcome.map_err(|error| or_unknown(error, &name, &provider))? {
        Online::Done(written) => {
            tell(&name, &written, "provider online");
            shown(&app, &roster, written).await
        }
        Online::Deactivated(row) => Err(deactivated(&name, &provider, Some(row))),
    }
}

/// Go offline
///
/// Idempotent.
#[utoipa::path(
    post, path = "/v1/rosters/{r}/providers/{p}/offline", tag = "rosters",
    security(("token" = ["beat"]), ("provider" = [])),
    request_body(content = Option<NoFields>, description = "May be left out"),
    responses((status = 200, description = "The provider now", body = Written<Provider>), ProviderErrors)
)]
pub(crate) async fn offline(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathParams((name, provider)): PathParams<(RosterName, ProviderId)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    OptionalJson(NoFields {}): OptionalJson<NoFields>,
) -> RouteResult {
    let issued_at = gate::provider(&app, &caller, &name, &provider)?;
    let roster = app.roster(&name)?;
    admit(&app, &roster, &provider, issued_at).await?;
    let (writer, whom) = (roster.clone(), provider.clone());
    let outcome = app.write_in(call, async move { writer.offline(&whom).await }).await;
    let written = outcome.map_err(|error| or_unknown(error, &name, &provider))?;
    tell(&name, &written, "provider offline");
    shown(&app, &roster, written).await
}

/// Activate a provider
///
/// It may take work again, but stays offline until it goes online. Tokens issued before the deactivation stay revoked.
#[utoipa::path(
    post, path = "/v1/rosters/{r}/providers/{p}/activate", tag = "rosters",
    security(("token" = ["operate"])),
    request_body(content = Option<NoFields>, description = "May be left out"),
    responses((status = 200, description = "The provider now", body = Written<Provider>), OperatorErrors, NotFound)
)]
pub(crate) async fn activate(
    State(app): State<Arc<App>>,
    PathParams((name, provider)): PathParams<(RosterName, ProviderId)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    OptionalJson(NoFields {}): OptionalJson<NoFields>,
) -> RouteResult {
    let roster = app.roster(&name)?;
    let (writer, whom) = (roster.clone(), provider.clone());
    let outcome = app.write_in(call, async move { writer.activate(&whom).await }).await;
    let written = outcome.map_err(|error| or_unknown(error, &name, &provider))?;
    tell(&name, &written, "provider activated");
    shown(&app, &roster, written).await
}

/// Deactivate a provider
///
/// It goes offline, gets no new work, and its tokens are revoked. From the moment of this answer its calls are refused, even
/// while the hot store is down.
#[utoipa::path(
    post, path = "/v1/rosters/{r}/providers/{p}/deactivate", tag = "rosters",
    security(("token" = ["operate"])),
    request_body(content = Option<NoFields>, description = "May be left out"),
    responses((status = 200, description = "The provider now", body = Written<Provider>), OperatorErrors, NotFound)
)]
pub(crate) async fn deactivate(
    State(app): State<Arc<App>>,
    PathParams((name, provider)): PathParams<(RosterName, ProviderId)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    OptionalJson(NoFields {}): OptionalJson<NoFields>,
) -> RouteResult {
    let roster = app.roster(&name)?;
    let (writer, whom) = (roster.clone(), provider.clone());
    let outcome = app.write_in(call, async move { writer.deactivate(&whom).await }).await;
    let written = outcome.map_err(|error| or_unknown(error, &name, &provider))?;
    tell(&name, &written, "provider deactivated");
    shown(&app, &roster, written).await
}

/// Send a heartbeat
///
/// About every 30 s while online. Keeps the provider online; never takes it online or activates it. Concurrent heartbeats are
/// sent to the hot store in one batch, and do not touch the ledger while the hot store is up.
#[utoipa::path(
    post, path = "/v1/rosters/{r}/providers/{p}/heartbeat", tag = "rosters",
    security(("token" = ["beat"]), ("provider" = [])),
    request_body(content = Option<NoFields>, description = "May be left out"),
    responses(
        (status = 200, description = "Recorded", body = HeartbeatAnswer),
        ProviderErrors,
        (status = 409, description = "`provider_offline`: go online first", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn heartbeat(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathParams((name, provider)): PathParams<(RosterName, ProviderId)>,
    _: NoQuery,
    OptionalJson(NoFields {}): OptionalJson<NoFields>,
) -> RouteResult {
    let issued_at = gate::provider(&app, &caller, &name, &provider)?;
    let roster = app.roster(&name)?;
    match app.look_in(roster.heartbeat(&provider, issued_at)).await? {
        HeartbeatOutcome::Recorded(recorded) => json(StatusCode::OK, &HeartbeatAnswer { provider, recorded }),
        HeartbeatOutcome::Offline => {
            let message = format!("{provider} is offline in the roster {name}; go online first");
            Err(Failure::new(Code::ProviderOffline, message))
        }
        HeartbeatOutcome::Deactivated => Err(deactivated(&name, &provider, None)),
        HeartbeatOutcome::Revoked => Err(revoked(&app, &roster, &provider, issued_at).await),
        HeartbeatOutcome::Unknown => Err(unknown(&name, &provider)),
    }
}

/// The answer to a write: the row, and whether its provider is alive. A provider that is online in the row may have lapsed
/// already, which reaches the ledger later; so liveness is looked up, and `false` when it cannot be.
async fn shown(app: &App, roster: &Roster, written: Written<core::Provider>) -> RouteResult {
    let row = &written.value;
    let alive = match &row.online {
        None => false,
        Some(_) => app
            .look_in(roster.is_reachable(&row.provider))
            .await
            .is_ok_and(|reachable| reachable.value),
    };
    json(StatusCode::OK, &written.map(|row| Provider::new(row, alive)))
}

/// One structured log line for each change of a provider through this daemon, named like the events.
fn tell(roster: &RosterName, written: &Written<core::Provider>, what: &str) {
    if written.changed {
        let (row, mirrored) = (&written.value, written.mirrored);
        tracing::info!(%roster, provider = %row.provider, version = %row.version, mirrored, "{what}");
    }
}

/// Names the provider and its roster in a 404.
fn or_unknown(error: Error, roster: &RosterName, provider: &ProviderId) -> Failure {
    match error.kind() {
        ErrorKind::NotFound => unknown(roster, provider),
        _ => error.into(),
    }
}
