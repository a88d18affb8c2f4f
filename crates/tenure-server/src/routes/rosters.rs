//! Rosters: list and settings.

pub(super) mod engagements;
mod gate;
pub(super) mod hot_store;
pub(super) mod log;
pub(super) mod providers;
pub(super) mod reading;
mod work;

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::roster::Written;
use tenure::wire::PageQuery;
use tenure::wire::roster::RostersPage;
use tenure_core::id::RosterName;
use tenure_core::ledger::{RosterSettings, SettingsPatch};
use tenure_core::store::bad_cursor;

use super::openapi::{NoRosters, OperatorErrors, ReadErrors, RosterReadErrors};
use crate::app::App;
use crate::auth::Caller;
use crate::extract::{Json, NoQuery, NotAfter, PathParams, Query};
use crate::reply::{RouteResult, json};

/// List the rosters
///
/// Rosters that have settings or ever had a provider, ordered by name; at most seconds old. Only rosters that the caller's
/// token is valid for.
#[utoipa::path(
    get, path = "/v1/rosters", tag = "rosters",
    security(("token" = ["read"])),
    params(PageQuery),
    responses((status = 200, description = "A page of rosters", body = RostersPage), ReadErrors, NoRosters)
)]
pub(crate) async fn list(State(app): State<Arc<App>>, caller: Caller, Query(query): Query<PageQuery>) -> RouteResult {
    let page = query.request()?;
    let after = page
        .after
        .map(|after| RosterName::new(&after).map_err(|_| bad_cursor(&after)));
    let after = after.transpose()?;
    let limit = page.limit as usize;
    let names = app.rosters()?.names().into_iter();
    let mut rosters: Vec<_> = names
        .filter(|name| caller.sees_roster(name))
        .filter(|name| after.as_ref().is_none_or(|after| name > after))
        .take(limit + 1)
        .collect();
    let more = rosters.len() > limit;
    rosters.truncate(limit);
    let next = rosters.last().filter(|_| more).map(ToString::to_string);
    json(StatusCode::OK, &RostersPage { rosters, next })
}

/// Get the settings of a roster
///
/// The settings in effect on this daemon, at most a second old; defaults if none were set.
#[utoipa::path(
    get, path = "/v1/rosters/{r}", tag = "rosters",
    security(("token" = ["read"])),
    responses((status = 200, description = "Its settings", body = RosterSettings), RosterReadErrors)
)]
pub(crate) async fn settings(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathParams(name): PathParams<RosterName>,
    _: NoQuery,
) -> RouteResult {
    let roster = app.roster(&name)?;
    let settings = app.look_in_roster(&caller, &name, roster.settings()).await?;
    json(StatusCode::OK, &settings.value)
}

/// Change the settings of a roster
///
/// At run time: every daemon applies them within a second. Omitted settings do not change.
#[utoipa::path(
    patch, path = "/v1/rosters/{r}", tag = "rosters",
    security(("token" = ["operate"])),
    request_body = SettingsPatch,
    responses((status = 200, description = "The new settings", body = Written<RosterSettings>), OperatorErrors)
)]
pub(crate) async fn set(
    State(app): State<Arc<App>>,
    PathParams(name): PathParams<RosterName>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    Json(patch): Json<SettingsPatch>,
) -> RouteResult {
    let roster = app.roster(&name)?;
    patch.check()?;
    let written = app
        .write_in(call, async move { roster.set_settings(&patch).await })
        .await?;
    if written.changed {
        let now = &written.value;
        tracing::info!(roster = %name, version = %now.version, "roster settings changed");
    }
    json(StatusCode::OK, &written)
}
