//! Rosters: which there are, and their settings. What each route may take, and what all of them share.

pub(super) mod engagements;
mod gate;
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

use super::openapi::{OfOperators, Reads, RosterReads, Unbuilt};
use crate::app::App;
use crate::auth::Caller;
use crate::extract::{Json, Limits, Names, NoQuery, Query};
use crate::reply::{Answer, json};

/// List the rosters
///
/// Those that have settings or ever had a provider, in the order of their names, as the ledger told within seconds; of
/// these, those that the caller's token is for.
#[utoipa::path(
    get, path = "/v1/rosters", tag = "rosters",
    security(("token" = ["read"])),
    params(PageQuery),
    responses((status = 200, description = "A page of rosters", body = RostersPage), Reads, Unbuilt)
)]
pub(crate) async fn list(State(app): State<Arc<App>>, caller: Caller, Query(query): Query<PageQuery>) -> Answer {
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

/// The settings of a roster
///
/// Those that this daemon obeys, at most a second old. A roster of which none was ever set has the defaults.
#[utoipa::path(
    get, path = "/v1/rosters/{r}", tag = "rosters",
    security(("token" = ["read"])),
    responses((status = 200, description = "Its settings", body = RosterSettings), RosterReads)
)]
pub(crate) async fn settings(
    State(app): State<Arc<App>>,
    caller: Caller,
    Names(name): Names<RosterName>,
    _: NoQuery,
) -> Answer {
    let roster = app.roster(&name)?;
    let settings = app.look_in_roster(&caller, &name, roster.settings()).await?;
    json(StatusCode::OK, &settings.value)
}

/// Change the settings of a roster
///
/// While it runs: every daemon obeys within a second. What is not named stays.
#[utoipa::path(
    patch, path = "/v1/rosters/{r}", tag = "rosters",
    security(("token" = ["operate"])),
    request_body = SettingsPatch,
    responses((status = 200, description = "Its settings now", body = Written<RosterSettings>), OfOperators)
)]
pub(crate) async fn set(
    State(app): State<Arc<App>>,
    Names(name): Names<RosterName>,
    _: NoQuery,
    Limits(call): Limits,
    Json(patch): Json<SettingsPatch>,
) -> Answer {
    let roster = app.roster(&name)?;
    patch.check()?;
    let written = app
        .write_in(call, async move { roster.set_settings(&patch).await })
        .await?;
    if written.changed {
        let now = &written.value;
        tracing::info!(roster = %name, version = %now.version, "the settings of a roster have changed");
    }
    json(StatusCode::OK, &written)
}
