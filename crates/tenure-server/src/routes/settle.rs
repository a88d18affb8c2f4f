//! An operator's word that nothing was held.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::wire::SettleRequest;
use tenure_core::id::Group;
use tenure_core::store::Call;
use tenure_core::sweep::SettleReport;

use super::openapi::Writes;
use crate::app::App;
use crate::audit::Operated;
use crate::extract::{Limits, Names, NoQuery, OptionalJson};
use crate::reply::{Answer, json};

/// End the wait of a new store
///
/// The word of an operator that no lease was held when the wait began: all groups that wait because they are `new` grant
/// leases at once, and so do those that are made later in the same wait (in a cluster they wait for themselves). Groups that
/// wait for another cause keep waiting, unless it is named. A command, never a setting.
#[utoipa::path(
    post, path = "/v1/settle", tag = "groups", operation_id = "settle_all",
    security(("token" = ["operate", "everywhere"])),
    request_body(content = Option<SettleRequest>, description = "May be left out"),
    responses((status = 200, description = "What was settled, and what was not", body = SettleReport), Writes)
)]
pub(crate) async fn all(
    State(app): State<Arc<App>>,
    _: NoQuery,
    Limits(call): Limits,
    operated: Operated,
    OptionalJson(request): OptionalJson<SettleRequest>,
) -> Answer {
    settle(&app, None, call, &operated, &request).await
}

/// End the wait of a new group
///
/// As for all groups, for this one alone.
#[utoipa::path(
    post, path = "/v1/groups/{g}/settle", tag = "groups", operation_id = "settle",
    security(("token" = ["operate"])),
    request_body(content = Option<SettleRequest>, description = "May be left out"),
    responses((status = 200, description = "Whether it was settled", body = SettleReport), Writes)
)]
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Names(group): Names<Group>,
    _: NoQuery,
    Limits(call): Limits,
    operated: Operated,
    OptionalJson(request): OptionalJson<SettleRequest>,
) -> Answer {
    settle(&app, Some(&group), call, &operated, &request).await
}

async fn settle(app: &App, group: Option<&Group>, call: Call, operated: &Operated, request: &SettleRequest) -> Answer {
    if let Some(cause) = request.cause {
        operated.note(format!("cause {}", cause.as_str()));
    }
    let report = app.write(app.store.settle(group, request.cause, call)).await?;
    tracing::warn!(
        settled = report.settled,
        left = report.left.len(),
        "an operator says that nothing was held"
    );
    json(StatusCode::OK, &report)
}
