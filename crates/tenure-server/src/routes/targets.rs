//! Targets: what a fleet places on its nodes.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use tenure::nodes::look_at;
use tenure::wire::{Code, Problem, REMOVED, Target, TargetQuery, TargetRequest, TargetsPage, TargetsQuery};
use tenure_core::error::Result;
use tenure_core::id::{Group, LeaseName};
use tenure_core::target as core;

use super::openapi::{Reads, Writes};
use crate::app::App;
use crate::extract::{Limits, Names, NoQuery, OptionalJson, Query};
use crate::reply::{Answer, Failure, json, no_content};

/// Make a target, or replace it
///
/// What the body does not name is as in a new target. Doing it again is safe.
#[utoipa::path(
    put, path = "/v1/groups/{g}/targets/{t}", tag = "targets",
    security(("token" = ["write"])),
    request_body(content = Option<TargetRequest>, description = "May be left out"),
    responses(
        (status = 200, description = "It was there, and is like this now", body = Target),
        (status = 201, description = "It is new", body = Target),
        Writes
    )
)]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    Names((group, target)): Names<(Group, LeaseName)>,
    _: NoQuery,
    Limits(call): Limits,
    OptionalJson(request): OptionalJson<TargetRequest>,
) -> Answer {
    let spec = request.spec()?;
    let new = app.write(app.store.put_target(&group, &target, spec, call)).await?;
    tracing::info!(%group, %target, paused = spec.paused, weight = spec.weight, new, "target put");
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    json(status, &Target::from(core::Target { target, spec }))
}

/// Remove a target
///
/// Idempotent; the header `Tenure-Removed` tells whether it was there. Its lease stays with whoever holds it until they
/// notice.
#[utoipa::path(
    delete, path = "/v1/groups/{g}/targets/{t}", tag = "targets",
    security(("token" = ["write"])),
    responses(
        (status = 204, description = "It is not there (any more)", headers(("Tenure-Removed" = String, description = "Whether it was"))),
        Writes
    )
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    Names((group, target)): Names<(Group, LeaseName)>,
    _: NoQuery,
    Limits(call): Limits,
) -> Answer {
    let removed = app.write(app.store.remove_target(&group, &target, call)).await?;
    tracing::info!(%group, %target, removed, "target removed");
    let mut response = no_content();
    let value = HeaderValue::from_static(if removed { "true" } else { "false" });
    response.headers_mut().insert(HeaderName::from_static(REMOVED), value);
    Ok(response)
}

/// Look a target up
///
/// With the node that it would rather be on, and the member that holds its lease.
#[utoipa::path(
    get, path = "/v1/groups/{g}/targets/{t}", tag = "targets",
    security(("token" = ["read"]), ("token" = ["beat"])),
    params(TargetQuery),
    responses(
        (status = 200, description = "The target", body = Target),
        (status = 404, description = "`not_found`", body = Problem, content_type = "application/problem+json"),
        Reads
    )
)]
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Names((group, target)): Names<(Group, LeaseName)>,
    Query(query): Query<TargetQuery>,
) -> Answer {
    let look = async {
        match app.store.target(&group, &target).await? {
            Some(found) => show(&app, &group, vec![found], query.plain)
                .await
                .map(|mut all| all.pop()),
            None => Ok(None),
        }
    };
    match app.read(look).await? {
        Some(found) => json(StatusCode::OK, &found),
        None => Err(Failure::new(Code::NotFound, format!("{group} has no target {target}"))),
    }
}

/// List targets
///
/// With the nodes that they would rather be on, and the members that hold their leases.
#[utoipa::path(
    get, path = "/v1/groups/{g}/targets", tag = "targets",
    security(("token" = ["read"])),
    params(TargetsQuery),
    responses((status = 200, description = "A page of targets", body = TargetsPage), Reads)
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Names(group): Names<Group>,
    Query(query): Query<TargetsQuery>,
) -> Answer {
    let plain = query.plain;
    let page = query.request()?;
    let look = async {
        let page = app.store.targets(&group, &page).await?;
        let targets = show(&app, &group, page.items, plain).await?;
        Ok(TargetsPage {
            targets,
            next: page.next,
        })
    };
    json(StatusCode::OK, &app.read(look).await?)
}

/// Adds where targets would rather be, and who holds their leases.
async fn show(app: &App, group: &Group, targets: Vec<core::Target>, plain: bool) -> Result<Vec<Target>> {
    if plain {
        return Ok(targets.into_iter().map(Into::into).collect());
    }
    let placed = look_at(&*app.store, group, targets).await?;
    Ok(placed.into_iter().map(Into::into).collect())
}
