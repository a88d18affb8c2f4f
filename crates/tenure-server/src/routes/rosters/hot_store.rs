//! The hot store of the ledger: shown and replaced.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::wire::roster::{HotStoreState, NoFields};

use crate::app::App;
use crate::audit::AuditDetails;
use crate::extract::{NoQuery, NotAfter, OptionalJson};
use crate::reply::{RouteResult, json};
use crate::routes::openapi::{NoRosters, ReadErrors, WriteErrors};

/// Get the hot store of the ledger
///
/// A ledger has one hot store. A daemon with another one serves its rosters from the ledger.
#[utoipa::path(
    get, path = "/v1/hot-store", tag = "rosters", operation_id = "hot_store",
    security(("token" = ["read", "everywhere"])),
    responses((status = 200, description = "That of this daemon and that of the ledger", body = HotStoreState), ReadErrors, NoRosters)
)]
pub(crate) async fn show(State(app): State<Arc<App>>, _: NoQuery) -> RouteResult {
    let status = app.look_in(app.rosters()?.hot_store()).await?;
    json(StatusCode::OK, &HotStoreState::from(status))
}

/// Replace the hot store of the ledger
///
/// Makes the hot store of this daemon that of the ledger. Daemons with the previous one serve their rosters from the ledger
/// until they use this one. A one-time command for a store that moved; a store that lost its data needs none.
#[utoipa::path(
    put, path = "/v1/hot-store", tag = "rosters", operation_id = "replace_hot_store",
    security(("token" = ["operate", "everywhere"])),
    request_body(content = Option<NoFields>, description = "May be left out"),
    responses((status = 200, description = "The hot store of the ledger now", body = HotStoreState), WriteErrors, NoRosters)
)]
pub(crate) async fn replace(
    State(app): State<Arc<App>>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    audit: AuditDetails,
    OptionalJson(NoFields {}): OptionalJson<NoFields>,
) -> RouteResult {
    let rosters = app.rosters()?.clone();
    let status = app
        .write_in(call, async move { rosters.replace_hot_store().await })
        .await?;
    audit.set(format!("hot store {}", status.own));
    tracing::warn!(hot_store = %status.own, "an operator replaced the hot store of the ledger");
    json(StatusCode::OK, &HotStoreState::from(status))
}
