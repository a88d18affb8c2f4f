//! Leases: acquire, release, look up, list; single and in batches.

pub(super) mod acquire;
pub(super) mod revoke;

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::wire::{
    AcquireLeasesAnswer, Code, Lease, LeaseFilter, LeasesPage, LeasesQuery, Problem, ReleaseLeaseAnswer,
    ReleaseLeaseRequest, ReleaseLeasesAnswer, ReleaseWord,
};
use tenure_core::id::{Group, LeaseName};
use tenure_core::lease::{Acquire, Acquired, ReleaseLeases, ReleaseOutcome, ReleasedLeases, check_leases};
use tenure_core::store::Call;

use super::openapi::{EndedError, ReadErrors, WriteErrors};
use crate::app::App;
use crate::extract::{Json, NoQuery, NotAfter, PathParams, Query};
use crate::lease_log;
use crate::reply::{Failure, RouteResult, all_answered, json, only};

/// The noun in messages.
const LEASES: &str = "leases";

/// Acquire many leases
///
/// At most 10,000, each with its own result, in request order; applied in atomic parts of about 200. An empty list only checks
/// the tenure. Never waits. The body limit is four times the usual one.
#[utoipa::path(
    post, path = "/v1/groups/{g}/leases-acquire", tag = "leases",
    security(("token" = ["beat"])),
    request_body = Acquire,
    responses((status = 200, description = "The answers, in the order asked", body = AcquireLeasesAnswer), EndedError, WriteErrors)
)]
pub(crate) async fn acquire_many(
    State(app): State<Arc<App>>,
    PathParams(group): PathParams<Group>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    Json(request): Json<Acquire>,
) -> RouteResult {
    check_leases(request.leases.len())?;
    let leases = request.leases.clone();
    let acquired = ask(&app, &group, request, call).await?;
    json(StatusCode::OK, &AcquireLeasesAnswer::new(leases, acquired))
}

async fn ask(app: &Arc<App>, group: &Group, acquire: Acquire, call: Call) -> Result<Acquired, Failure> {
    let (tenure, leases) = (&acquire.tenure.clone(), &acquire.leases.clone()[..]);
    let acquired = app.step(leases.len(), app.store.acquire_with(group, acquire, call));
    let acquired = app.timed(acquired, |acquired| acquired.as_of).await?;
    all_answered(acquired.outcomes.len(), leases.len(), LEASES)?;
    lease_log::acquired(group, tenure, leases, &acquired);
    Ok(acquired)
}

/// Release a lease, or hand it off
///
/// Names the exact tenure and token, so that a late release cannot affect a successor. Releasing a free lease succeeds. With
/// `to`, the lease is reserved for that member for five seconds, in which it has to acquire it (`reserved`). If that member is
/// not alive, or is the one that releases, the lease is free (`released`).
#[utoipa::path(
    post, path = "/v1/groups/{g}/leases/{l}/release", tag = "leases",
    security(("token" = ["beat"])),
    request_body = ReleaseLeaseRequest,
    responses(
        (status = 200, description = "The tenure does not hold the lease", body = ReleaseLeaseAnswer),
        EndedError,
        WriteErrors,
        (status = 409, description = "`not_holder` (see `holder` and `tenure`), `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn release(
    State(app): State<Arc<App>>,
    PathParams((group, lease)): PathParams<(Group, LeaseName)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    Json(request): Json<ReleaseLeaseRequest>,
) -> RouteResult {
    let ReleaseLeaseRequest {
        tenure,
        token,
        to,
        seen,
    } = request;
    let leases = vec![(lease.clone(), token)];
    let release = ReleaseLeases {
        tenure: tenure.clone(),
        leases,
        to,
        seen,
    };
    let given = give_up(&app, &group, release, call).await?;
    let outcome = match only(given.outcomes, LEASES)? {
        ReleaseOutcome::Released => ReleaseWord::Released,
        ReleaseOutcome::Reserved => ReleaseWord::Reserved,
        ReleaseOutcome::NotHolder { by } => {
            let detail = if by == tenure {
                format!("{lease} is held by {by} under another token than {token}")
            } else {
                format!("{lease} is held by {by}")
            };
            return Err(Problem::new(Code::NotHolder, detail).with_holder(by).into());
        }
    };
    let answer = ReleaseLeaseAnswer {
        lease,
        outcome,
        revision: given.revision,
        revision_before: given.before,
        as_of: given.as_of,
    };
    json(StatusCode::OK, &answer)
}

/// Release many leases, or hand them off
///
/// At most 10,000, each with its own result, in request order; applied in atomic parts of about 200. The body limit is four
/// times the usual one.
#[utoipa::path(
    post, path = "/v1/groups/{g}/leases-release", tag = "leases",
    security(("token" = ["beat"])),
    request_body = ReleaseLeases,
    responses((status = 200, description = "The answers, in the order asked", body = ReleaseLeasesAnswer), EndedError, WriteErrors)
)]
pub(crate) async fn release_many(
    State(app): State<Arc<App>>,
    PathParams(group): PathParams<Group>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    Json(request): Json<ReleaseLeases>,
) -> RouteResult {
    check_leases(request.leases.len())?;
    let names: Vec<LeaseName> = request.leases.iter().map(|(lease, _)| lease.clone()).collect();
    let given = give_up(&app, &group, request, call).await?;
    json(StatusCode::OK, &ReleaseLeasesAnswer::new(names, given))
}

async fn give_up(app: &App, group: &Group, release: ReleaseLeases, call: Call) -> Result<ReleasedLeases, Failure> {
    let ReleaseLeases { tenure, leases, to, .. } = &release.clone();
    let given = app.step(leases.len(), app.store.release_with(group, release, call));
    let given = app.timed(given, |given| given.as_of).await?;
    all_answered(given.outcomes.len(), leases.len(), LEASES)?;
    // Without a change the leases were free before.
    if given.revision != given.before {
        lease_log::given_up(group, tenure, leases, to.as_ref(), &given.outcomes);
    }
    Ok(given)
}

/// Get a lease
///
/// `alive` says whether its holder is alive now; it does not wait for a janitor.
#[utoipa::path(
    get, path = "/v1/groups/{g}/leases/{l}", tag = "leases",
    security(("token" = ["read"]), ("token" = ["beat"])),
    responses(
        (status = 200, description = "Its holder", body = Lease),
        (status = 404, description = "`not_found`: the lease is free", body = Problem, content_type = "application/problem+json"),
        ReadErrors
    )
)]
pub(crate) async fn look_up(
    State(app): State<Arc<App>>,
    PathParams((group, lease)): PathParams<(Group, LeaseName)>,
    _: NoQuery,
) -> RouteResult {
    match app.read(app.store.lease_of(&group, &lease)).await? {
        Some(lease) => json(StatusCode::OK, &lease),
        None => Err(Failure::new(Code::NotFound, format!("the lease {lease} is not held"))),
    }
}

/// List leases
///
/// All, of one holder, or of exactly one tenure.
#[utoipa::path(
    get, path = "/v1/groups/{g}/leases", tag = "leases",
    security(("token" = ["read"])),
    params(LeasesQuery),
    responses((status = 200, description = "A page of leases", body = LeasesPage), ReadErrors)
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    PathParams(group): PathParams<Group>,
    Query(query): Query<LeasesQuery>,
) -> RouteResult {
    let (whose, page) = query.request()?;
    let listed: LeasesPage = match whose {
        LeaseFilter::All => app.read(app.store.leases(&group, None, &page)).await?.into(),
        LeaseFilter::Holder(holder) => app.read(app.store.leases(&group, Some(&holder), &page)).await?.into(),
        LeaseFilter::Tenure(tenure) => app.read(app.store.held_leases(&group, &tenure, &page)).await?.into(),
    };
    json(StatusCode::OK, &listed)
}
