//! Providers: written down and removed, online and offline, activated and deactivated, heard of.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use tenure::roster::{Heard, Online, Removal, Roster, Written};
use tenure::wire::roster::{HeartbeatAnswer, NoFields, Provider};
use tenure::wire::{Code, MIRRORED, Problem};
use tenure_core::error::{Error, ErrorKind};
use tenure_core::id::{ProviderId, RosterName};
use tenure_core::ledger::{self as core, ProviderSpec};

use super::gate::{self, admit, deactivated, revoked, unknown};
use crate::app::App;
use crate::auth::Caller;
use crate::extract::{Limits, Names, NoQuery, OptionalJson};
use crate::reply::{Answer, Failure, json, no_content};
use crate::routes::openapi::{NotFound, OfOperators, OfProviders};

/// Write a provider down, or change it
///
/// A new one is active and offline. What is not named stays. Doing it again is safe.
#[utoipa::path(
    put, path = "/v1/rosters/{r}/providers/{p}", tag = "rosters",
    security(("token" = ["write"])),
    request_body(content = Option<ProviderSpec>, description = "May be left out"),
    responses((status = 200, description = "The provider now", body = Written<Provider>), OfOperators)
)]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    Names((name, provider)): Names<(RosterName, ProviderId)>,
    _: NoQuery,
    Limits(call): Limits,
    OptionalJson(spec): OptionalJson<ProviderSpec>,
) -> Answer {
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
/// One that is offline and has no open engagement. Its log and its past engagements stay. The header `Tenure-Mirrored`
/// tells whether the hot store knows already.
#[utoipa::path(
    delete, path = "/v1/rosters/{r}/providers/{p}", tag = "rosters",
    security(("token" = ["operate"])),
    responses(
        (status = 204, description = "It is gone", headers(("Tenure-Mirrored" = String, description = "Whether the hot store knows"))),
        OfOperators, NotFound,
        (status = 409, description = "`provider_busy`, `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    Names((name, provider)): Names<(RosterName, ProviderId)>,
    _: NoQuery,
    Limits(call): Limits,
) -> Answer {
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
/// Counts as a heartbeat in the same step. Online already, it stays so. While the hot store is away it is online in the
/// ledger (`mirrored: false`).
#[utoipa::path(
    post, path = "/v1/rosters/{r}/providers/{p}/online", tag = "rosters",
    security(("token" = ["beat"]), ("provider" = [])),
    request_body(content = Option<NoFields>, description = "May be left out"),
    responses((status = 200, description = "The provider now", body = Written<Provider>), OfProviders)
)]
pub(crate) async fn online(
    State(app): State<Arc<App>>,
    caller: Caller,
    Names((name, provider)): Names<(RosterName, ProviderId)>,
    _: NoQuery,
    Limits(call): Limits,
    OptionalJson(NoFields {}): OptionalJson<NoFields>,
) -> Answer {
    let issued_at = gate::provider(&app, &caller, &provider)?;
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
/// Offline already, it stays so.
#[utoipa::path(
    post, path = "/v1/rosters/{r}/providers/{p}/offline", tag = "rosters",
    security(("token" = ["beat"]), ("provider" = [])),
    request_body(content = Option<NoFields>, description = "May be left out"),
    responses((status = 200, description = "The provider now", body = Written<Provider>), OfProviders)
)]
pub(crate) async fn offline(
    State(app): State<Arc<App>>,
    caller: Caller,
    Names((name, provider)): Names<(RosterName, ProviderId)>,
    _: NoQuery,
    Limits(call): Limits,
    OptionalJson(NoFields {}): OptionalJson<NoFields>,
) -> Answer {
    let issued_at = gate::provider(&app, &caller, &provider)?;
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
/// It may take work again, and stays offline until it goes online by itself. Tokens from before its deactivation stay void.
#[utoipa::path(
    post, path = "/v1/rosters/{r}/providers/{p}/activate", tag = "rosters",
    security(("token" = ["operate"])),
    request_body(content = Option<NoFields>, description = "May be left out"),
    responses((status = 200, description = "The provider now", body = Written<Provider>), OfOperators, NotFound)
)]
pub(crate) async fn activate(
    State(app): State<Arc<App>>,
    Names((name, provider)): Names<(RosterName, ProviderId)>,
    _: NoQuery,
    Limits(call): Limits,
    OptionalJson(NoFields {}): OptionalJson<NoFields>,
) -> Answer {
    let roster = app.roster(&name)?;
    let (writer, whom) = (roster.clone(), provider.clone());
    let outcome = app.write_in(call, async move { writer.activate(&whom).await }).await;
    let written = outcome.map_err(|error| or_unknown(error, &name, &provider))?;
    tell(&name, &written, "provider activated");
    shown(&app, &roster, written).await
}

/// Deactivate a provider
///
/// It goes offline, takes no work, and what it was given before is void. Whatever it does is refused from the moment of this
/// answer on, also while the hot store is away.
#[utoipa::path(
    post, path = "/v1/rosters/{r}/providers/{p}/deactivate", tag = "rosters",
    security(("token" = ["operate"])),
    request_body(content = Option<NoFields>, description = "May be left out"),
    responses((status = 200, description = "The provider now", body = Written<Provider>), OfOperators, NotFound)
)]
pub(crate) async fn deactivate(
    State(app): State<Arc<App>>,
    Names((name, provider)): Names<(RosterName, ProviderId)>,
    _: NoQuery,
    Limits(call): Limits,
    OptionalJson(NoFields {}): OptionalJson<NoFields>,
) -> Answer {
    let roster = app.roster(&name)?;
    let (writer, whom) = (roster.clone(), provider.clone());
    let outcome = app.write_in(call, async move { writer.deactivate(&whom).await }).await;
    let written = outcome.map_err(|error| or_unknown(error, &name, &provider))?;
    tell(&name, &written, "provider deactivated");
    shown(&app, &roster, written).await
}

/// Heartbeat: a provider is there
///
/// To be sent about every 30 s while online. Keeps it online, and never takes it online or activates it. Heartbeats that
/// arrive together travel to the hot store together, and the ledger has no work with them while the hot store is there.
#[utoipa::path(
    post, path = "/v1/rosters/{r}/providers/{p}/heartbeat", tag = "rosters",
    security(("token" = ["beat"]), ("provider" = [])),
    request_body(content = Option<NoFields>, description = "May be left out"),
    responses(
        (status = 200, description = "It counts", body = HeartbeatAnswer),
        OfProviders,
        (status = 409, description = "`provider_offline`: go online first", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn heartbeat(
    State(app): State<Arc<App>>,
    caller: Caller,
    Names((name, provider)): Names<(RosterName, ProviderId)>,
    _: NoQuery,
    OptionalJson(NoFields {}): OptionalJson<NoFields>,
) -> Answer {
    let issued_at = gate::provider(&app, &caller, &provider)?;
    let roster = app.roster(&name)?;
    match app.look_in(roster.heartbeat(&provider, issued_at)).await? {
        Heard::Recorded(recorded) => json(StatusCode::OK, &HeartbeatAnswer { provider, recorded }),
        Heard::Offline => {
            let message = format!("{provider} is offline in the roster {name}; go online first");
            Err(Failure::new(Code::ProviderOffline, message))
        }
        Heard::Deactivated => Err(deactivated(&name, &provider, None)),
        Heard::Revoked => Err(revoked(&app, &roster, &provider, issued_at).await),
        Heard::Unknown => Err(unknown(&name, &provider)),
    }
}

/// The answer to a write: the row, and whether its provider is there. Whoever is online in the row may have stopped being
/// heard of, which the ledger learns later; so that is looked up, and counts as not there when nobody can tell.
async fn shown(app: &App, roster: &Roster, written: Written<core::Provider>) -> Answer {
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

/// One structured line for each change of a provider that goes through this daemon, in the words of the events.
fn tell(roster: &RosterName, written: &Written<core::Provider>, what: &str) {
    if written.changed {
        let (row, mirrored) = (&written.value, written.mirrored);
        tracing::info!(%roster, provider = %row.provider, version = %row.version, mirrored, "{what}");
    }
}

/// A provider that is not there is told by its name and its roster's.
fn or_unknown(error: Error, roster: &RosterName, provider: &ProviderId) -> Failure {
    match error.kind() {
        ErrorKind::NotFound => unknown(roster, provider),
        _ => error.into(),
    }
}
