//! Who is there, and who has room.

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
use crate::extract::{Names, NoQuery, Query};
use crate::reply::{Answer, json};
use crate::routes::openapi::RosterReads;

/// Look a provider up
///
/// Whether it is alive is as of now and waits for no sweep.
#[utoipa::path(
    get, path = "/v1/rosters/{r}/providers/{p}", tag = "rosters", operation_id = "provider",
    security(("token" = ["read"]), ("token" = ["beat"])),
    responses((status = 200, description = "The provider", body = Sourced<Provider>), RosterReads)
)]
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    Names((name, provider)): Names<(RosterName, ProviderId)>,
    _: NoQuery,
) -> Answer {
    let roster = app.roster(&name)?;
    let found = app.look_in_roster(&caller, &name, roster.provider(&provider)).await?;
    let (view, source) = (found.value.ok_or_else(|| unknown(&name, &provider))?, found.source);
    let value = Provider::from(view);
    json(StatusCode::OK, &Sourced { value, source })
}

/// List providers
///
/// All, or those in one state. A page may be shorter than its limit, and empty, and still have a `next`.
#[utoipa::path(
    get, path = "/v1/rosters/{r}/providers", tag = "rosters", operation_id = "providers",
    security(("token" = ["read"])),
    params(ProvidersQuery),
    responses((status = 200, description = "A page of providers", body = ProvidersPage), RosterReads)
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Names(name): Names<RosterName>,
    Query(query): Query<ProvidersQuery>,
) -> Answer {
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

/// Who can take work
///
/// Online, active, with room and heard of lately: the least occupied first, then by name. One whose occupancy changes between
/// two pages may be in both or in none.
#[utoipa::path(
    get, path = "/v1/rosters/{r}/available", tag = "rosters",
    security(("token" = ["read"])),
    params(PageQuery),
    responses((status = 200, description = "They", body = AvailableAnswer), RosterReads)
)]
pub(crate) async fn available(
    State(app): State<Arc<App>>,
    caller: Caller,
    Names(name): Names<RosterName>,
    Query(query): Query<PageQuery>,
) -> Answer {
    let page = query.request()?;
    let roster = app.roster(&name)?;
    let found = app.look_in_roster(&caller, &name, roster.available_page(&page)).await?;
    json(StatusCode::OK, &AvailableAnswer::from(found))
}

/// Can anybody take work?
///
/// From a snapshot that all daemons share, at most as old as the roster's `snapshot_ms`, and made anew when something
/// relevant has changed: cheap enough for every customer to ask all the time.
#[utoipa::path(
    get, path = "/v1/rosters/{r}/availability", tag = "rosters",
    security(("token" = ["read"])),
    responses((status = 200, description = "Whether, and how many", body = AvailabilityAnswer), RosterReads)
)]
pub(crate) async fn availability(
    State(app): State<Arc<App>>,
    caller: Caller,
    Names(name): Names<RosterName>,
    _: NoQuery,
) -> Answer {
    let roster = app.roster(&name)?;
    let found = app.look_in_roster(&caller, &name, roster.availability()).await?;
    json(StatusCode::OK, &AvailabilityAnswer::from(found))
}

/// Count providers by state
#[utoipa::path(
    get, path = "/v1/rosters/{r}/stats", tag = "rosters",
    security(("token" = ["read"])),
    responses((status = 200, description = "How many are in which state", body = Sourced<RosterStats>), RosterReads)
)]
pub(crate) async fn stats(
    State(app): State<Arc<App>>,
    caller: Caller,
    Names(name): Names<RosterName>,
    _: NoQuery,
) -> Answer {
    let roster = app.roster(&name)?;
    let found = app.look_in_roster(&caller, &name, roster.stats()).await?;
    json(StatusCode::OK, &found)
}
