//! Registries: claim, look up, list, release.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::wire::{
    Claim, ClaimAnswer, ClaimRequest, ClaimResult, ClaimWord, ClaimsAnswer, ClaimsPage, ClaimsQuery, ClaimsRequest,
    Code, Problem, ReleaseQuery,
};
use tenure_core::id::{Group, Key, RegistryName};

use super::openapi::{Ended, Reads, Writes};
use crate::app::App;
use crate::extract::{Json, Limits, Names, NoQuery, Query};
use crate::reply::{Answer, Failure, all_answered, json, no_content, only};

/// What is asked about, for messages.
const KEYS: &str = "keys";

/// Claim a key
///
/// Takes it from whoever owns it, or, with `if_absent`, only from nobody, the dead, and the member's own past.
#[utoipa::path(
    put, path = "/v1/groups/{g}/registries/{r}/claims/{key}", tag = "registries",
    security(("token" = ["beat"])),
    request_body = ClaimRequest,
    responses(
        (status = 200, description = "It is owned by that tenure now", body = ClaimAnswer),
        Ended,
        Writes,
        (status = 409, description = "`claim_held` (`owner` and `tenure` say by whom), `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn claim(
    State(app): State<Arc<App>>,
    Names((group, registry, key)): Names<(Group, RegistryName, Key)>,
    _: NoQuery,
    Limits(call): Limits,
    Json(request): Json<ClaimRequest>,
) -> Answer {
    let keys = std::slice::from_ref(&key);
    let claimed = app
        .store
        .claim(&group, &registry, &request.tenure, keys, request.mode(), call);
    let claimed = app.step(1, claimed).await?;
    app.watch.heard_of(&group, &registry);
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
        revision: claimed.revision,
    };
    json(StatusCode::OK, &answer)
}

/// Claim many keys
///
/// At most 10,000, each answered by itself, in the order asked; applied in atomic parts of about 200. A body of up to four
/// times the usual limit is read.
#[utoipa::path(
    post, path = "/v1/groups/{g}/registries/{r}/claims", tag = "registries",
    security(("token" = ["beat"])),
    request_body = ClaimsRequest,
    responses((status = 200, description = "The answers, in the order asked", body = ClaimsAnswer), Ended, Writes)
)]
pub(crate) async fn claim_many(
    State(app): State<Arc<App>>,
    Names((group, registry)): Names<(Group, RegistryName)>,
    _: NoQuery,
    Limits(call): Limits,
    Json(request): Json<ClaimsRequest>,
) -> Answer {
    let claimed = app
        .store
        .claim(&group, &registry, &request.tenure, &request.keys, request.mode(), call);
    let claimed = app.step(request.keys.len(), claimed).await?;
    app.watch.heard_of(&group, &registry);
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

/// Look a key up
///
/// `alive` tells whether its owner is alive now; it does not wait for a janitor.
#[utoipa::path(
    get, path = "/v1/groups/{g}/registries/{r}/claims/{key}", tag = "registries",
    security(("token" = ["read"]), ("token" = ["beat"])),
    responses(
        (status = 200, description = "Its owner", body = Claim),
        (status = 404, description = "`not_found`", body = Problem, content_type = "application/problem+json"),
        Reads
    )
)]
pub(crate) async fn look_up(
    State(app): State<Arc<App>>,
    Names((group, registry, key)): Names<(Group, RegistryName, Key)>,
    _: NoQuery,
) -> Answer {
    match app.read(app.store.claim_of(&group, &registry, &key)).await? {
        Some(claim) => json(StatusCode::OK, &claim),
        None => Err(Failure::new(Code::NotFound, format!("nobody owns {key} in {registry}"))),
    }
}

/// List claims
#[utoipa::path(
    get, path = "/v1/groups/{g}/registries/{r}/claims", tag = "registries",
    security(("token" = ["read"])),
    params(ClaimsQuery),
    responses((status = 200, description = "A page of claims", body = ClaimsPage), Reads)
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Names((group, registry)): Names<(Group, RegistryName)>,
    Query(query): Query<ClaimsQuery>,
) -> Answer {
    let (owner, page) = query.request()?;
    let claims = app
        .read(app.store.claims(&group, &registry, owner.as_ref(), &page))
        .await?;
    if !claims.items.is_empty() {
        app.watch.heard_of(&group, &registry);
    }
    json(StatusCode::OK, &ClaimsPage::from(claims))
}

/// Release a key
///
/// Names the exact tenure: a late release cannot touch a successor. Releasing what nobody owns is fine.
#[utoipa::path(
    delete, path = "/v1/groups/{g}/registries/{r}/claims/{key}", tag = "registries",
    security(("token" = ["beat"])),
    params(ReleaseQuery),
    responses(
        (status = 204, description = "That tenure does not own it (any more)"),
        Ended,
        Writes,
        (status = 409, description = "`not_owner`, `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn release(
    State(app): State<Arc<App>>,
    Names((group, registry, key)): Names<(Group, RegistryName, Key)>,
    Query(query): Query<ReleaseQuery>,
    Limits(call): Limits,
) -> Answer {
    app.step(1, app.store.release_claim(&group, &registry, &key, &query.tenure, call))
        .await?;
    Ok(no_content())
}
