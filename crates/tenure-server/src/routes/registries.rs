//! Registries: claim, look up, list, release.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::wire::{
    Claim, ClaimAnswer, ClaimRequest, ClaimResult, ClaimWord, ClaimsAnswer, ClaimsPage, ClaimsQuery, ClaimsRequest,
    Code, Problem, ReleaseQuery,
};
use tenure_core::id::{Group, Key, RegistryName};

use super::openapi::{EndedError, ReadErrors, WriteErrors};
use crate::app::App;
use crate::extract::{Json, NoQuery, NotAfter, PathParams, Query};
use crate::reply::{Failure, RouteResult, all_answered, json, no_content, only};

/// The noun in messages.
const KEYS: &str = "keys";

/// Claim a key
///
/// Takes the key from any owner; with `if_absent`, only if it is free, or owned by a dead tenure or an earlier tenure of the
/// same member.
#[utoipa::path(
    put, path = "/v1/groups/{g}/registries/{r}/claims/{key}", tag = "registries",
    security(("token" = ["beat"])),
    request_body = ClaimRequest,
    responses(
        (status = 200, description = "The tenure owns the key", body = ClaimAnswer),
        EndedError,
        WriteErrors,
        (status = 409, description = "`claim_held` (see `owner` and `tenure`), `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn claim(
    State(app): State<Arc<App>>,
    PathParams((group, registry, key)): PathParams<(Group, RegistryName, Key)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    Json(request): Json<ClaimRequest>,
) -> RouteResult {
    let keys = std::slice::from_ref(&key);
    let claimed = app
        .store
        .claim(&group, &registry, &request.tenure, keys, request.mode(), call);
    let claimed = app.step(1, claimed).await?;
    app.watch.remember_registry(&group, &registry);
    let result = ClaimResult::new(key, only(claimed.outcomes, KEYS)?);
    if let (ClaimWord::Held, Some(by)) = (result.outcome, result.tenure) {
        let detail = format!("{} is owned by the living tenure {by}", result.key);
        return Err(Failure::from(Problem::new(Code::ClaimHeld, detail).with_owner(by)));
    }
    let (owner, tenure) = (request.tenure.member().clone(), request.tenure);
    let answer = ClaimAnswer {
        key: result.key,
        owner,
        tenure,
        outcome: result.outcome,
        from: result.from,
        from_member: result.from_member,
        revision: claimed.revision,
    };
    json(StatusCode::OK, &answer)
}

/// Claim many keys
///
/// At most 10,000, each with its own result, in request order; applied in atomic parts of about 200. The body limit is four
/// times the usual one.
#[utoipa::path(
    post, path = "/v1/groups/{g}/registries/{r}/claims", tag = "registries",
    security(("token" = ["beat"])),
    request_body = ClaimsRequest,
    responses((status = 200, description = "The answers, in the order asked", body = ClaimsAnswer), EndedError, WriteErrors)
)]
pub(crate) async fn claim_many(
    State(app): State<Arc<App>>,
    PathParams((group, registry)): PathParams<(Group, RegistryName)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    Json(request): Json<ClaimsRequest>,
) -> RouteResult {
    let claimed = app
        .store
        .claim(&group, &registry, &request.tenure, &request.keys, request.mode(), call);
    let claimed = app.step(request.keys.len(), claimed).await?;
    app.watch.remember_registry(&group, &registry);
    all_answered(claimed.outcomes.len(), request.keys.len(), KEYS)?;
    let results = request
        .keys
        .into_iter()
        .zip(claimed.outcomes)
        .map(|(key, outcome)| ClaimResult::new(key, outcome))
        .collect();
    let answer = ClaimsAnswer {
        results,
        revision: claimed.revision,
        revision_before: claimed.before,
    };
    json(StatusCode::OK, &answer)
}

/// Get the owner of a key
///
/// `alive` says whether the owner is alive now; it does not wait for a janitor.
#[utoipa::path(
    get, path = "/v1/groups/{g}/registries/{r}/claims/{key}", tag = "registries",
    security(("token" = ["read"]), ("token" = ["beat"])),
    responses(
        (status = 200, description = "Its owner", body = Claim),
        (status = 404, description = "`not_found`", body = Problem, content_type = "application/problem+json"),
        ReadErrors
    )
)]
pub(crate) async fn look_up(
    State(app): State<Arc<App>>,
    PathParams((group, registry, key)): PathParams<(Group, RegistryName, Key)>,
    _: NoQuery,
) -> RouteResult {
    match app.read(app.store.claim_of(&group, &registry, &key)).await? {
        Some(claim) => json(StatusCode::OK, &claim),
        None => Err(Failure::new(
            Code::NotFound,
            format!("the key {key} is not claimed in the registry {registry}"),
        )),
    }
}

/// List claims
#[utoipa::path(
    get, path = "/v1/groups/{g}/registries/{r}/claims", tag = "registries",
    security(("token" = ["read"])),
    params(ClaimsQuery),
    responses((status = 200, description = "A page of claims", body = ClaimsPage), ReadErrors)
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    PathParams((group, registry)): PathParams<(Group, RegistryName)>,
    Query(query): Query<ClaimsQuery>,
) -> RouteResult {
    let (owner, page) = query.request()?;
    let claims = app
        .read(app.store.claims(&group, &registry, owner.as_ref(), &page))
        .await?;
    if !claims.items.is_empty() {
        app.watch.remember_registry(&group, &registry);
    }
    json(StatusCode::OK, &ClaimsPage::from(claims))
}

/// Release a key
///
/// Names the exact tenure, so that a late release cannot affect a successor. Releasing a free key succeeds.
#[utoipa::path(
    delete, path = "/v1/groups/{g}/registries/{r}/claims/{key}", tag = "registries",
    security(("token" = ["beat"])),
    params(ReleaseQuery),
    responses(
        (status = 204, description = "The tenure does not own the key"),
        EndedError,
        WriteErrors,
        (status = 409, description = "`not_owner` (see `owner` and `tenure`), `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn release(
    State(app): State<Arc<App>>,
    PathParams((group, registry, key)): PathParams<(Group, RegistryName, Key)>,
    Query(query): Query<ReleaseQuery>,
    NotAfter(call): NotAfter,
) -> RouteResult {
    app.step(1, app.store.release_claim(&group, &registry, &key, &query.tenure, call))
        .await?;
    Ok(no_content())
}
