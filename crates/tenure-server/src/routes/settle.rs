//! Settle: an operator ends the wait for forgotten holders.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::wire::SettleRequest;
use tenure_core::id::Group;
use tenure_core::store::Call;
use tenure_core::sweep::SettleReport;

use super::openapi::WriteErrors;
use crate::app::App;
use crate::audit::AuditDetails;
use crate::extract::{NoQuery, NotAfter, OptionalJson, PathParams};
use crate::reply::{RouteResult, json};

/// End the wait of a new store
///
/// The operator asserts that no lease was held when the wait began. All groups that wait because they are `new` grant leases
/// immediately, and so do groups created later during the same wait (except in a cluster). Groups that wait for another cause
/// keep waiting, unless `cause` names it. A one-time command, never a setting.
#[utoipa::path(
    post, path = "/v1/settle", tag = "groups", operation_id = "settle_all",
    security(("token" = ["operate", "everywhere"])),
    request_body(content = Option<SettleRequest>, description = "May be left out"),
    responses((status = 200, description = "The number of settled groups, and those left", body = SettleReport), WriteErrors)
)]
pub(crate) async fn all(
    State(app): State<Arc<App>>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    audit: AuditDetails,
    OptionalJson(request): OptionalJson<SettleRequest>,
) -> RouteResult {
    settle(&app, None, call, &audit, &request).await
}

/// End the wait of a new group
///
/// The same for one group.
#[utoipa::path(
    post, path = "/v1/groups/{g}/settle", tag = "groups", operation_id = "settle",
    security(("token" = ["operate"])),
    request_body(content = Option<SettleRequest>, description = "May be left out"),
    responses((status = 200, description = "Whether it was settled", body = SettleReport), WriteErrors)
)]
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    PathParams(group): PathParams<Group>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    audit: AuditDetails,
    OptionalJson(request): OptionalJson<SettleRequest>,
) -> RouteResult {
    settle(&app, Some(&group), call, &audit, &request).await
}

async fn settle(
    app: &App,
    group: Option<&Group>,
    call: Call,
    audit: &AuditDetails,
    request: &SettleRequest,
) -> RouteResult {
    if let Some(cause) = request.cause {
        audit.set(format!("cause {}", cause.as_str()));
    }
    let report = app.write(app.store.settle(group, request.cause, call)).await?;
    tracing::warn!(
        settled = report.settled,
        left = report.left.len(),
        "an operator settled: no lease was held"
    );
    json(StatusCode::OK, &report)
}
