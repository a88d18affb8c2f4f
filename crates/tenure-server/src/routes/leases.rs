//! Leases: acquire, release, look up, list; one by one and many at once.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::wire::{
    AcquireAnswer, AcquireLeasesAnswer, AcquireRequest, AcquireWord, Code, Lease, LeasesPage, LeasesQuery, Problem,
    ReleaseLeaseAnswer, ReleaseLeaseRequest, ReleaseLeasesAnswer, ReleaseWord, Whose,
};
use tenure_core::id::{Group, LeaseName, MemberId, TenureId};
use tenure_core::lease::{
    Acquire, AcquireOutcome, Acquired, GivenUp, ReleaseLeases, ReleaseOutcome, Token, check_leases,
};
use tenure_core::settling::GapCause;
use tenure_core::store::Call;
use tenure_core::time::StoreTime;

use super::openapi::{Ended, Reads, Writes};
use crate::app::App;
use crate::extract::{Json, Limits, Names, NoQuery, Query};
use crate::lease_log;
use crate::reply::{Answer, Failure, all_answered, json, only};

/// What is asked about, for messages.
const LEASES: &str = "leases";

/// Acquire a lease
///
/// Asking again for what is held already answers the same token, so that a lost answer costs nothing. A lease is given out
/// only when nobody else can still be at work under it: that of a tenure that was superseded or expelled waits for that
/// tenure's last deadline. Never waits for a janitor.
#[utoipa::path(
    post, path = "/v1/groups/{g}/leases/{l}/acquire", tag = "leases",
    security(("token" = ["beat"])),
    request_body = AcquireRequest,
    responses(
        (status = 200, description = "That tenure holds it now", body = AcquireAnswer),
        Ended,
        Writes,
        (status = 409, description = "`lease_held` (`holder` and `tenure` say by whom, or `reserved_for` for whom), `unsettled`, `too_late`; \
            `retry_after_ms` says when to ask again", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn acquire(
    State(app): State<Arc<App>>,
    Names((group, lease)): Names<(Group, LeaseName)>,
    _: NoQuery,
    Limits(call): Limits,
    Json(request): Json<AcquireRequest>,
) -> Answer {
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
        format!("{lease} was handed off, and is kept for the member {to}"),
    );
    problem.with_reserved_for(to).with_retry_after(free_in).into()
}

fn unsettled(cause: GapCause, retry_in: Duration, as_of: StoreTime) -> Failure {
    let detail = format!("{} (at {})", cause.why_no_lease(retry_in), as_of + retry_in);
    Problem::new(Code::Unsettled, detail).with_retry_after(retry_in).into()
}

/// Acquire many leases
///
/// At most 10,000, each answered by itself, in the order asked; applied in atomic parts of about 200. With no lease at all
/// the tenure alone is checked. A body of up to four times the usual limit is read.
#[utoipa::path(
    post, path = "/v1/groups/{g}/leases-acquire", tag = "leases",
    security(("token" = ["beat"])),
    request_body = Acquire,
    responses((status = 200, description = "The answers, in the order asked", body = AcquireLeasesAnswer), Ended, Writes)
)]
pub(crate) async fn acquire_many(
    State(app): State<Arc<App>>,
    Names(group): Names<Group>,
    _: NoQuery,
    Limits(call): Limits,
    Json(request): Json<Acquire>,
) -> Answer {
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
/// Names the exact tenure and token: a late release cannot touch a successor. Releasing what nobody holds is fine. With
/// `to`, the lease is kept for that member for five seconds (`reserved`); it still has to come for it. When that member is
/// not alive, or is the one that releases, the lease is simply free (`released`).
#[utoipa::path(
    post, path = "/v1/groups/{g}/leases/{l}/release", tag = "leases",
    security(("token" = ["beat"])),
    request_body = ReleaseLeaseRequest,
    responses(
        (status = 200, description = "That tenure does not hold it (any more)", body = ReleaseLeaseAnswer),
        Ended,
        Writes,
        (status = 409, description = "`not_holder` (`holder` and `tenure` say who is), `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn release(
    State(app): State<Arc<App>>,
    Names((group, lease)): Names<(Group, LeaseName)>,
    _: NoQuery,
    Limits(call): Limits,
    Json(request): Json<ReleaseLeaseRequest>,
) -> Answer {
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
/// At most 10,000, each answered by itself, in the order asked; applied in atomic parts of about 200. A body of up to four
/// times the usual limit is read.
#[utoipa::path(
    post, path = "/v1/groups/{g}/leases-release", tag = "leases",
    security(("token" = ["beat"])),
    request_body = ReleaseLeases,
    responses((status = 200, description = "The answers, in the order asked", body = ReleaseLeasesAnswer), Ended, Writes)
)]
pub(crate) async fn release_many(
    State(app): State<Arc<App>>,
    Names(group): Names<Group>,
    _: NoQuery,
    Limits(call): Limits,
    Json(request): Json<ReleaseLeases>,
) -> Answer {
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
) -> Result<GivenUp, Failure> {
    let given = app.step(leases.len(), app.store.release_leases(group, tenure, leases, to, call));
    let given = app.timed(given, |given| given.as_of).await?;
    all_answered(given.outcomes.len(), leases.len(), LEASES)?;
    lease_log::given_up(group, tenure, leases, to, &given.outcomes);
    Ok(given)
}

/// Look a lease up
///
/// `alive` tells whether its holder is alive now; it does not wait for a janitor.
#[utoipa::path(
    get, path = "/v1/groups/{g}/leases/{l}", tag = "leases",
    security(("token" = ["read"]), ("token" = ["beat"])),
    responses(
        (status = 200, description = "Its holder", body = Lease),
        (status = 404, description = "`not_found`: it is free", body = Problem, content_type = "application/problem+json"),
        Reads
    )
)]
pub(crate) async fn look_up(
    State(app): State<Arc<App>>,
    Names((group, lease)): Names<(Group, LeaseName)>,
    _: NoQuery,
) -> Answer {
    match app.read(app.store.lease_of(&group, &lease)).await? {
        Some(lease) => json(StatusCode::OK, &lease),
        None => Err(Failure::new(Code::NotFound, format!("nobody holds {lease}"))),
    }
}

/// List leases
///
/// Of everybody, of one holder, or of exactly one tenure.
#[utoipa::path(
    get, path = "/v1/groups/{g}/leases", tag = "leases",
    security(("token" = ["read"])),
    params(LeasesQuery),
    responses((status = 200, description = "A page of leases", body = LeasesPage), Reads)
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Names(group): Names<Group>,
    Query(query): Query<LeasesQuery>,
) -> Answer {
    let (whose, page) = query.request()?;
    let listed: LeasesPage = match whose {
        Whose::All => app.read(app.store.leases(&group, None, &page)).await?.into(),
        Whose::Holder(holder) => app.read(app.store.leases(&group, Some(&holder), &page)).await?.into(),
        Whose::Tenure(tenure) => app.read(app.store.held_leases(&group, &tenure, &page)).await?.into(),
    };
    json(StatusCode::OK, &listed)
}
