//! Acquiring one lease, with or without a wait.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::lease::Waited;
use tenure::wire::{AcquireAnswer, AcquireRequest, AcquireWord, Code, Problem, ms};
use tenure_core::id::{Group, LeaseName, MemberId, TenureId};
use tenure_core::lease::{Acquire, AcquireOutcome, Acquired, MAX_WAITING_PER_GROUP, MAX_WAITING_PER_LEASE};
use tenure_core::settling::GapCause;
use tenure_core::time::StoreTime;

use super::super::openapi::{EndedError, WriteErrors};
use super::{LEASES, ask};
use crate::app::App;
use crate::extract::{Json, NoQuery, NotAfter, PathParams};
use crate::lease_log;
use crate::middleware::overloaded;
use crate::reply::{Failure, RouteResult, json, only};
use crate::room::{Permit, Share};

/// How soon to ask again when the queue is full.
const FULL_RETRY: Duration = Duration::from_secs(1);

/// Acquire a lease, or wait for it
///
/// Repeating the call returns the same token, so a lost answer is harmless. A lease is granted only when no other holder can
/// still be working under it: after a supersede or expel it becomes free at the last deadline of that tenure. Does not wait
/// for a janitor.
///
/// With `holders: N` the lease is a semaphore: N tenures can hold it, each in a place of its own. The number is fixed while a
/// place is taken or waited for.
///
/// With `wait_ms` the request waits in a queue, first come, first served, and is answered when the lease is granted or the
/// wait is over (`lease_held` with `waited_ms`). While a request waits, acquires without a wait are refused. Closing the
/// connection gives up the place. Repeating the call on another connection keeps it; the older request is answered
/// `wait_replaced`. `Tenure-Not-After` limits joining the queue, not the wait. A tenure has one place per lease, and the place
/// ends with the tenure: send beats while you wait.
#[utoipa::path(
    post, path = "/v1/groups/{g}/leases/{l}/acquire", tag = "leases",
    security(("token" = ["beat"])),
    request_body = AcquireRequest,
    responses(
        (status = 200, description = "The tenure holds the lease", body = AcquireAnswer),
        EndedError,
        WriteErrors,
        (status = 409, description = "`lease_held` (see `holder` and `tenure`, or `reserved_for`), `holders_differ`, \
            `wait_replaced`, `unsettled`, `too_late`; `retry_after_ms` says when to retry", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "`queue_full`: too many requests wait; `rate_limited`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn acquire(
    State(app): State<Arc<App>>,
    share: Share,
    PathParams((group, lease)): PathParams<(Group, LeaseName)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    Json(request): Json<AcquireRequest>,
) -> RouteResult {
    let wait = request.wait_ms.filter(|ms| *ms > 0).map(Duration::from_millis);
    let acquire = Acquire {
        holders: request.holders,
        seen: request.seen,
        ..Acquire::new(request.tenure, vec![lease.clone()])
    };
    let tenure = acquire.tenure.clone();
    let Some(wait) = wait else {
        let _permit = Permit::enter(&app, |app| &app.requests, share).ok_or_else(overloaded)?;
        let acquired = ask(&app, &group, acquire, call).await?;
        return answer(lease, tenure, acquired, None);
    };
    let _permit = Permit::enter(&app, |app| &app.waiters, share).ok_or_else(|| daemon_full(&app))?;
    let begun = app.clock.mono();
    let waited = app.waits.acquire(&group, acquire, wait, call).await?;
    let took = app.clock.mono().since(begun);
    match waited {
        Waited::Answered(acquired) => {
            lease_log::acquired(&group, &tenure, std::slice::from_ref(&lease), &acquired);
            answer(lease, tenure, acquired, Some(took))
        }
        Waited::Over(acquired) => answer(lease, tenure, acquired, Some(took)),
        Waited::Replaced => {
            let detail = format!("a later request of {tenure} for {lease} has taken its place");
            Err(Problem::new(Code::WaitReplaced, detail).with_waited(Some(took)).into())
        }
    }
}

fn answer(lease: LeaseName, tenure: TenureId, acquired: Acquired, waited: Option<Duration>) -> RouteResult {
    let (outcome, token, place, generation, from) = match only(acquired.outcomes, LEASES)? {
        AcquireOutcome::Granted {
            token,
            place,
            generation,
            from,
        } => (AcquireWord::Granted, token, place, generation, from),
        AcquireOutcome::Kept {
            token,
            place,
            generation,
        } => (AcquireWord::Kept, token, place, generation, None),
        refused => return Err(refusal(&lease, refused, acquired.as_of).with_waited(waited).into()),
    };
    let answer = AcquireAnswer {
        lease,
        holder: tenure.member().clone(),
        tenure,
        token,
        place,
        generation,
        expires_in_ms: ms(acquired.expires_in),
        outcome,
        waited_ms: waited.map(ms),
        from_member: from.as_ref().map(|from| from.member().clone()),
        from,
        revision: acquired.revision,
        revision_before: acquired.before,
        as_of: acquired.as_of,
    };
    json(StatusCode::OK, &answer)
}

fn refusal(lease: &LeaseName, outcome: AcquireOutcome, as_of: StoreTime) -> Problem {
    match outcome {
        AcquireOutcome::Held { by, free_in } => held(lease, by, free_in),
        AcquireOutcome::Reserved { to, free_in } => reserved(lease, to, free_in),
        AcquireOutcome::Unsettled { retry_in, cause } => unsettled(cause, retry_in, as_of),
        AcquireOutcome::HoldersDiffer { holders } => {
            let detail = format!("{lease} is held or waited for with {holders} holders; ask for the same number");
            Problem::new(Code::HoldersDiffer, detail).with_holders(holders)
        }
        AcquireOutcome::QueueFull { waiting } => full(
            waiting,
            format!(
                "{waiting} requests wait; at most {MAX_WAITING_PER_LEASE} may wait for one lease and \
                 {MAX_WAITING_PER_GROUP} in one group"
            ),
        ),
        other => Problem::new(Code::Internal, format!("the store answered {other:?} for {lease}")),
    }
}

fn held(lease: &LeaseName, by: TenureId, free_in: Duration) -> Problem {
    let problem = Problem::new(Code::LeaseHeld, format!("{lease} is held by the tenure {by}"));
    problem.with_holder(by).with_retry_after(free_in)
}

fn reserved(lease: &LeaseName, to: MemberId, free_in: Duration) -> Problem {
    let problem = Problem::new(
        Code::LeaseHeld,
        format!("{lease} is reserved for the member {to}: it was handed off, or {to} waits for it"),
    );
    problem.with_reserved_for(to).with_retry_after(free_in)
}

fn unsettled(cause: GapCause, retry_in: Duration, as_of: StoreTime) -> Problem {
    let detail = format!("{} (at {})", cause.why_no_lease(retry_in), as_of + retry_in);
    let problem = Problem::new(Code::Unsettled, detail).with_cause(cause);
    problem.with_retry_after(retry_in)
}

fn daemon_full(app: &App) -> Failure {
    let waiting = u32::try_from(app.waiters.held()).unwrap_or(u32::MAX);
    let limit = app.waiters.limit();
    let detail = format!(
        "{waiting} requests wait for leases at this daemon; one caller may have {limit} in a group (limits.waiters, at most \
         half of limits.connections), and fewer while other callers have many"
    );
    full(waiting, detail).into()
}

fn full(waiting: u32, detail: String) -> Problem {
    let problem = Problem::new(Code::QueueFull, detail).with_waiting(waiting);
    problem.with_retry_after(FULL_RETRY)
}
