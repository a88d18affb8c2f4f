//! Leases: acquire, release, look up, list; single and in batches.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::wire::{
    AcquireAnswer, AcquireLeasesAnswer, AcquireRequest, AcquireWord, Code, Lease, LeaseFilter, LeasesPage, LeasesQuery,
    Problem, ReleaseLeaseAnswer, ReleaseLeaseRequest, ReleaseLeasesAnswer, ReleaseWord,
};
use tenure_core::id::{Group, LeaseName, MemberId, TenureId};
use tenure_core::lease::{
    Acquire, AcquireOutcome, Acquired, ReleaseLeases, ReleaseOutcome, ReleasedLeases, Token, check_leases,
};
use tenure_core::settling::GapCause;
use tenure_core::store::Call;
use tenure_core::time::StoreTime;

use super::openapi::{EndedError, ReadErrors, WriteErrors};
use crate::app::App;
use crate::extract::{Json, NoQuery, NotAfter, PathParams, Query};
use crate::lease_log;
use crate::reply::{Failure, RouteResult, all_answered, json, only};

/// The noun in messages.
const LEASES: &str = "leases";

/// Acquire a lease
///
/// Repeating the call returns the same token, so a lost answer is harmless. A lease is granted only when no other holder can
/// still be working under it: after a supersede or expel it becomes free at the last deadline of that tenure. Does not wait
/// for a janitor.
#[utoipa::path(
    post, path = "/v1/groups/{g}/leases/{l}/acquire", tag = "leases",
    security(("token" = ["beat"])),
    request_body = AcquireRequest,
    responses(
        (status = 200, description = "The tenure holds the lease", body = AcquireAnswer),
        EndedError,
        WriteErrors,
        (status = 409, description = "`lease_held` (see `holder` and `tenure`, or `reserved_for`), `unsettled`, `too_late`; \
            `retry_after_ms` says when to retry", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn acquire(
    State(app): State<Arc<App>>,
    PathParams((group, lease)): PathParams<(Group, LeaseName)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    Json(request): Json<AcquireRequest>,
) -> RouteResult {
    let tenure = request.tenure;
    let leases = std::slice::from_ref(&lease);
    let acquired = ask(&app, &group, &tenure, leases, call).await?;
    let (word, token, from) = match only(acquired.outcomes, LEASES)? {
        AcquireOutcome::Granted { token, from } => (AcquireWord::Granted, token, from),
        AcquireOutcome::Kept { token } => (AcquireWord::Kept, token, None),
        AcquireOutcome::Held { by, free_in } => return Err(held(&lease, by, free_in)),
        AcquireOutcome::Reserved { to, free_in } => return Err(reserved(&lease, to, free_in)),
        AcquireOutcome::Unsettled { retry_in, cause } => return Err(unsettled(cause, retry_in, acquired.as_of)),
    };
    let answer = AcquireAnswer {
        lease,
        holder: tenure.member().clone(),
        tenure,
        token,
        expires_in_ms: tenure::wire::ms(acquired.expires_in),
        outcome: word,
        from_member: from.as_ref().map(|from| from.member().clone()),
        from,
        revision: acquired.revision,
        as_of: acquired.as_of,
    };
    json(StatusCode::OK, &answer)
}

fn held(lease: &LeaseName, by: TenureId, free_in: Duration) -> Failure {
    let problem = Problem::new(Code::LeaseHeld, format!("{lease} is held by the tenure {by}"));
    problem.with_holder(by).with_retry_after(free_in).into()
}

fn reserved(lease: &LeaseName, to: MemberId, free_in: Duration) -> Failure {
    let problem = Problem::new(
        Code::LeaseHeld,
        format!("{lease} was handed off and is reserved for the member {to}"),
    );
    problem.with_reserved_for(to).with_retry_after(free_in).into()
}

fn unsettled(cause: GapCause, retry_in: Duration, as_of: StoreTime) -> Failure {
    let detail = format!("{} (at {})", cause.why_no_lease(retry_in), as_of + retry_in);
    Problem::new(Code::Unsettled, detail).with_retry_after(retry_in).into()
}

/// Acquire many leases
///
/// At most 10,000, each with its own result, in request order; applied in atomic parts of about 200. An empty list only checks
/// the tenure. The body limit is four times the usual one.
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
    let acquired = ask(&app, &group, &request.tenure, &request.leases, call).await?;
    json(StatusCode::OK, &AcquireLeasesAnswer::new(request.leases, acquired))
}

async fn ask(
    app: &Arc<App>,
    group: &Group,
    tenure: &TenureId,
    leases: &[LeaseName],
    call: Call,
) -> Result<Acquired, Failure> {
    let acquired = app.step(leases.len(), app.store.acquire(group, tenure, leases, call));
    let acquired = app.timed(acquired, |acquired| acquired.as_of).await?;
    all_answered(acquired.outcomes.len(), leases.len(), LEASES)?;
    lease_log::acquired(app, group, tenure, leases, &acquired.outcomes);
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
    let ReleaseLeaseRequest { tenure, token, to } = request;
    let leases = [(lease, token)];
    let given = give_up(&app, &group, &tenure, &leases, to.as_ref(), call).await?;
    let [(lease, _)] = leases;
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
    let ReleaseLeases { tenure, leases, to } = request;
    let given = give_up(&app, &group, &tenure, &leases, to.as_ref(), call).await?;
    let names = leases.into_iter().map(|(lease, _)| lease);
    json(StatusCode::OK, &ReleaseLeasesAnswer::new(names, given))
}

async fn give_up(
    app: &App,
    group: &Group,
    tenure: &TenureId,
    leases: &[(LeaseName, Token)],
    to: Option<&MemberId>,
    call: Call,
) -> Result<ReleasedLeases, Failure> {
    let given = app.step(leases.len(), app.store.release_leases(group, tenure, leases, to, call));
    let given = app.timed(given, |given| given.as_of).await?;
    all_answered(given.outcomes.len(), leases.len(), LEASES)?;
    lease_log::given_up(group, tenure, leases, to, &given.outcomes);
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
