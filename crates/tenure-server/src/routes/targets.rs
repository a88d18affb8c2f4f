//! Targets: the units of work that a fleet places on its nodes.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use tenure::nodes;
use tenure::wire::{Code, Problem, REMOVED, Target, TargetQuery, TargetRequest, TargetsPage, TargetsQuery};
use tenure_core::error::Result;
use tenure_core::id::{Group, LeaseName};
use tenure_core::target as core;

use super::openapi::{ReadErrors, WriteErrors};
use crate::app::App;
use crate::extract::{NoQuery, NotAfter, OptionalJson, PathParams, Query};
use crate::reply::{Failure, RouteResult, json, no_content};
use crate::room::Share;

/// Create or replace a target
///
/// Omitted fields get their defaults. Idempotent.
#[utoipa::path(
    put, path = "/v1/groups/{g}/targets/{t}", tag = "targets",
    security(("token" = ["write"])),
    request_body(content = Option<TargetRequest>, description = "May be left out"),
    responses(
        (status = 200, description = "Replaced", body = Target),
        (status = 201, description = "Created", body = Target),
        WriteErrors
    )
)]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    PathParams((group, target)): PathParams<(Group, LeaseName)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    share: Share,
    OptionalJson(request): OptionalJson<TargetRequest>,
) -> RouteResult {
    let spec = request.spec()?;
    let _making = app.admit_group(&group, share).await?;
    let new = app.write(app.store.put_target(&group, &target, spec, call)).await?;
    if let Some(sweeper) = &app.sweeper {
        sweeper.touch(&group);
    }
    tracing::info!(%group, %target, paused = spec.paused, weight = spec.weight, new, "target put");
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    json(status, &Target::from(core::Target { target, spec }))
}

/// Remove a target
///
/// Idempotent; the header `Tenure-Removed` says whether it existed. Its holder keeps the lease until it notices.
#[utoipa::path(
    delete, path = "/v1/groups/{g}/targets/{t}", tag = "targets",
    security(("token" = ["write"])),
    responses(
        (status = 204, description = "The target does not exist", headers(("Tenure-Removed" = String, description = "Whether it existed"))),
        WriteErrors
    )
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    PathParams((group, target)): PathParams<(Group, LeaseName)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
) -> RouteResult {
    let removed = app.write(app.store.remove_target(&group, &target, call)).await?;
    if removed {
        tracing::info!(%group, %target, "target removed");
    }
    let mut response = no_content();
    let value = HeaderValue::from_static(if removed { "true" } else { "false" });
    response.headers_mut().insert(HeaderName::from_static(REMOVED), value);
    Ok(response)
}

/// Get a target
///
/// With its preferred node, and the member that holds its lease.
#[utoipa::path(
    get, path = "/v1/groups/{g}/targets/{t}", tag = "targets",
    security(("token" = ["read"]), ("token" = ["beat"])),
    params(TargetQuery),
    responses(
        (status = 200, description = "The target", body = Target),
        (status = 404, description = "`not_found`", body = Problem, content_type = "application/problem+json"),
        ReadErrors
    )
)]
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    PathParams((group, target)): PathParams<(Group, LeaseName)>,
    Query(query): Query<TargetQuery>,
) -> RouteResult {
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
/// With their preferred nodes, and the members that hold their leases.
#[utoipa::path(
    get, path = "/v1/groups/{g}/targets", tag = "targets",
    security(("token" = ["read"])),
    params(TargetsQuery),
    responses((status = 200, description = "A page of targets", body = TargetsPage), ReadErrors)
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    PathParams(group): PathParams<Group>,
    Query(query): Query<TargetsQuery>,
) -> RouteResult {
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

/// Adds the preferred nodes and lease holders of targets.
async fn show(app: &App, group: &Group, targets: Vec<core::Target>, plain: bool) -> Result<Vec<Target>> {
    if plain {
        return Ok(targets.into_iter().map(Into::into).collect());
    }
    let placed = nodes::placed(&*app.store, group, targets).await?;
    Ok(placed.into_iter().map(Into::into).collect())
}
