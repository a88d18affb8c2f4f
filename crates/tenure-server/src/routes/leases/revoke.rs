//! The release of a lease by an operator.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::meters;
use tenure::wire::{Code, Problem, RevokeQuery};
use tenure_core::error::{Error, ErrorKind};
use tenure_core::id::{Group, LeaseName};
use tenure_core::lease::Revoked;

use super::super::openapi::WriteErrors;
use crate::app::App;
use crate::audit::AuditDetails;
use crate::extract::{NotAfter, PathParams, Query};
use crate::reply::{Failure, RouteResult, json};

/// Release a lease in place of its holder
///
/// For operators. Name the grant by its `token` (then a successor is not affected) or its `holder`; a lease with one holder
/// needs neither. The lease stays taken until the holder has noticed: `free_when` is `noticed` if the holder's beats name
/// revisions (it is then free at its next beat, or at the latest at the deadline it had), and `tenure_ends` if they do not, so
/// that it cannot notice. Expelling the member is the quick way. Repeating the call changes nothing.
#[utoipa::path(
    delete, path = "/v1/groups/{g}/leases/{l}", tag = "leases",
    security(("token" = ["operate"])),
    params(RevokeQuery),
    responses(
        (status = 200, description = "The grant, and when the lease is free", body = Revoked),
        WriteErrors,
        (status = 404, description = "`not_found`: the lease is free", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`not_holder`: the member or token does not hold it; `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn revoke(
    State(app): State<Arc<App>>,
    PathParams((group, lease)): PathParams<(Group, LeaseName)>,
    Query(query): Query<RevokeQuery>,
    NotAfter(call): NotAfter,
    audit: AuditDetails,
) -> RouteResult {
    let of = query.of()?;
    let revoked = app.step(1, app.store.revoke_lease(&group, &lease, of, call)).await;
    let revoked = revoked.map_err(not_holder)?;
    let Revoked {
        holder, tenure, token, ..
    } = &revoked;
    audit.set(format!("token {token} of {tenure}"));
    tracing::warn!(
        %group, instance = %holder, target = %lease, token = token.get(), %tenure, reason = "operator", "lease revoked"
    );
    meters::lease_transition(&group, "revoked");
    if let Some(sweeper) = &app.sweeper {
        sweeper.touch(&group);
    }
    json(StatusCode::OK, &revoked)
}

/// The holder of a lease is not the owner of a key.
fn not_holder(error: Error) -> Failure {
    if error.kind() != ErrorKind::NotOwner {
        return error.into();
    }
    let problem = Problem::new(Code::NotHolder, error.message().to_owned());
    match error.holder() {
        Some(by) => problem.with_holder(by.clone()).into(),
        None => problem.into(),
    }
}
