//! Reads: providers, availability, stats.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::roster::Sourced;
use tenure::wire::PageQuery;
use tenure::wire::roster::{AvailabilityAnswer, AvailableAnswer, Provider, ProvidersPage, ProvidersQuery};
use tenure_core::id::{ProviderId, RosterName};
use tenure_core::ledger::RosterStats;

use super::gate::unknown;
use crate::app::App;
use crate::auth::Caller;
use crate::extract::{NoQuery, PathParams, Query};
use crate::reply::{RouteResult, json};
use crate::routes::openapi::RosterReadErrors;

/// Get a provider
///
/// `alive` is computed at the time of the read; it does not wait for a sweep.
#[utoipa::path(
    get, path = "/v1/rosters/{r}/providers/{p}", tag = "rosters", operation_id = "provider",
    security(("token" = ["read"]), ("token" = ["beat"])),
    responses((status = 200, description = "The provider", body = Sourced<Provider>), RosterReadErrors)
)]
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathParams((name, provider)): PathParams<(RosterName, ProviderId)>,
    _: NoQuery,
) -> RouteResult {
    let roster = app.roster(&name)?;
    let found = app.look_in_roster(&caller, &name, roster.provider(&provider)).await?;
    let (view, source) = (found.value.ok_or_else(|| unknown(&name, &provider))?, found.source);
    let value = Provider::from(view);
    json(StatusCode::OK, &Sourced { value, source })
}

/// List providers
///
/// All, or those in one state. A short or empty page may still have a `next`.
#[utoipa::path(
    get, path = "/v1/rosters/{r}/providers", tag = "rosters", operation_id = "providers",
    security(("token" = ["read"])),
    params(ProvidersQuery),
    responses((status = 200, description = "A page of providers", body = ProvidersPage), RosterReadErrors)
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathParams(name): PathParams<RosterName>,
    Query(query): Query<ProvidersQuery>,
) -> RouteResult {
    let (state, page) = query.request()?;
    let roster = app.roster(&name)?;
    let found = app
        .look_in_roster(&caller, &name, roster.providers(state, &page))
        .await?;
    let source = found.source;
    let shown = |view| Sourced {
        value: Provider::from(view),
        source,
    };
    let providers = found.value.items.into_iter().map(shown);
    let page = ProvidersPage {
        providers: providers.collect(),
        next: found.value.next,
        source,
    };
    json(StatusCode::OK, &page)
}

/// List available providers
///
/// Online, active, below capacity and with a fresh heartbeat; least occupied first, then by name. A provider whose occupancy
/// changes between two pages may be in both or in neither.
#[utoipa::path(
    get, path = "/v1/rosters/{r}/available", tag = "rosters",
    security(("token" = ["read"])),
    params(PageQuery),
    responses((status = 200, description = "A page of available providers", body = AvailableAnswer), RosterReadErrors)
)]
pub(crate) async fn available(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathParams(name): PathParams<RosterName>,
    Query(query): Query<PageQuery>,
) -> RouteResult {
    let page = query.request()?;
    let roster = app.roster(&name)?;
    let found = app.look_in_roster(&caller, &name, roster.available_page(&page)).await?;
    json(StatusCode::OK, &AvailableAnswer::from(found))
}

/// Check availability
///
/// From a snapshot shared by all daemons, at most `snapshot_ms` of the roster old and refreshed after relevant changes: cheap
/// enough for every customer to poll.
#[utoipa::path(
    get, path = "/v1/rosters/{r}/availability", tag = "rosters",
    security(("token" = ["read"])),
    responses((status = 200, description = "Whether and how many providers are available", body = AvailabilityAnswer), RosterReadErrors)
)]
pub(crate) async fn availability(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathParams(name): PathParams<RosterName>,
    _: NoQuery,
) -> RouteResult {
    let roster = app.roster(&name)?;
    let found = app.look_in_roster(&caller, &name, roster.availability()).await?;
    json(StatusCode::OK, &AvailabilityAnswer::from(found))
}

/// Count providers by state
#[utoipa::path(
    get, path = "/v1/rosters/{r}/stats", tag = "rosters",
    security(("token" = ["read"])),
    responses((status = 200, description = "Providers by state", body = Sourced<RosterStats>), RosterReadErrors)
)]
pub(crate) async fn stats(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathParams(name): PathParams<RosterName>,
    _: NoQuery,
) -> RouteResult {
    let roster = app.roster(&name)?;
    let found = app.look_in_roster(&caller, &name, roster.stats()).await?;
    json(StatusCode::OK, &found)
}
