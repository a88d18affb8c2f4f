//! Groups: list and state.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::wire::{GroupState, GroupsPage, PageQuery};
use tenure_core::id::Group;
use tenure_core::store::bad_cursor;

use super::openapi::ReadErrors;
use crate::app::App;
use crate::auth::Caller;
use crate::extract::{NoQuery, PathParams, Query};
use crate::reply::{RouteResult, json};

/// List the groups
///
/// Ordered by name; only groups that the caller's token is valid for. A listed group may be empty by now.
#[utoipa::path(
    get, path = "/v1/groups", tag = "groups",
    security(("token" = ["read"])),
    params(PageQuery),
    responses((status = 200, description = "A page of groups", body = GroupsPage), ReadErrors)
)]
pub(crate) async fn list(State(app): State<Arc<App>>, caller: Caller, Query(query): Query<PageQuery>) -> RouteResult {
    let page = query.request()?;
    let after = page
        .after
        .map(|after| Group::new(&after).map_err(|_| bad_cursor(&after)))
        .transpose()?;
    let limit = page.limit as usize;
    let all = app.groups().await?;
    let mut groups: Vec<Group> = all
        .into_iter()
        .filter(|group| caller.sees_group(group))
        .filter(|group| after.as_ref().is_none_or(|after| group > after))
        .take(limit + 1)
        .collect();
    let more = groups.len() > limit;
    groups.truncate(limit);
    let next = groups.last().filter(|_| more).map(ToString::to_string);
    json(StatusCode::OK, &GroupsPage { groups, next })
}

/// Get the state of a group
///
/// Settling, brake and due work. A group that was never used reads as an empty one.
#[utoipa::path(
    get, path = "/v1/groups/{g}", tag = "groups",
    security(("token" = ["read"])),
    responses((status = 200, description = "Its state", body = GroupState), ReadErrors)
)]
pub(crate) async fn one(State(app): State<Arc<App>>, PathParams(group): PathParams<Group>, _: NoQuery) -> RouteResult {
    let status = app.read(app.store.status(&group));
    let status = app.timed(status, |status| status.as_of).await?;
    json(StatusCode::OK, &GroupState::new(group, status))
}
