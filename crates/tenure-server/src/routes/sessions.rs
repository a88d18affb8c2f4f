//! Sessions: attach, detach, patch, delete; one by one and many at once.

pub(super) mod read;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use tenure::wire::{
    AttachAnswer, AttachRequest, AttachSessionsAnswer, Code, DetachQuery, DetachSessionsAnswer, PatchSessionRequest,
    Problem, SESSION_EPOCH, Session,
};
use tenure_core::id::{ConnectionId, Group, SessionId, TenureId};
use tenure_core::session::{
    Attach, AttachOutcome, Attached, Attaches, DeleteOutcome, Detach, DetachOutcome, Detaches, How, Limit,
    PatchOutcome, check_attaches, check_count, check_data,
};
use tenure_core::store::Call;

use super::openapi::{Ended, Writes};
use crate::app::App;
use crate::extract::{Json, Limits, Names, NoQuery, Query};
use crate::reply::{Answer, Failure, all_answered, json, no_content, only};
use crate::session_log;

/// What is asked about, for messages.
const CONNECTIONS: &str = "connections";

/// Attach a connection
///
/// Creates the session, adds to it, or resumes it, in one step. Asking again for what is attached already only gives a
/// newer epoch, so that a lost answer costs nothing. An orphan is never resumed: it is reaped on the way, whenever the
/// reaper comes, and what begins then is a new session.
#[utoipa::path(
    put, path = "/v1/groups/{g}/sessions/{s}", tag = "sessions",
    security(("token" = ["beat"])),
    request_body = AttachRequest,
    responses(
        (status = 200, description = "It had connections, or is resumed", body = AttachAnswer),
        (status = 201, description = "It is new", body = AttachAnswer),
        Ended,
        Writes,
        (status = 404, description = "`session_not_found`: with `resume_only`, nothing to come back to", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`alias_taken` (`session` says by which), `session_full` (`limit` says of what), `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn attach(
    State(app): State<Arc<App>>,
    Names((group, session)): Names<(Group, SessionId)>,
    _: NoQuery,
    Limits(call): Limits,
    Json(request): Json<AttachRequest>,
) -> Answer {
    let (tenure, attach) = request.attach(session);
    let attached = ask(&app, &group, &tenure, std::slice::from_ref(&attach), call).await?;
    let (how, session) = match only(attached.outcomes, CONNECTIONS)? {
        AttachOutcome::Attached { how, session } => (how, *session),
        AttachOutcome::AliasTaken { by } => return Err(alias_taken(&attach, by)),
        AttachOutcome::Gone => return Err(not_found(&group, &attach.session)),
        AttachOutcome::Full { of } => return Err(full(&attach.session, of)),
    };
    let answer = AttachAnswer {
        session,
        outcome: how.into(),
        revision: attached.revision,
    };
    let status = match how {
        How::Created => StatusCode::CREATED,
        How::Attached | How::Resumed => StatusCode::OK,
    };
    json(status, &answer)
}

/// Attach many connections
///
/// At most 10,000, each answered by itself, in the order asked; applied in atomic parts of about 200. With none the tenure
/// alone is checked. A body of up to four times the usual limit is read.
#[utoipa::path(
    post, path = "/v1/groups/{g}/sessions-attach", tag = "sessions",
    security(("token" = ["beat"])),
    request_body = Attaches,
    responses((status = 200, description = "The answers, in the order asked", body = AttachSessionsAnswer), Ended, Writes)
)]
pub(crate) async fn attach_many(
    State(app): State<Arc<App>>,
    Names(group): Names<Group>,
    _: NoQuery,
    Limits(call): Limits,
    Json(Attaches { tenure, attaches }): Json<Attaches>,
) -> Answer {
    let attached = ask(&app, &group, &tenure, &attaches, call).await?;
    let asked = attaches.into_iter().map(|attach| (attach.session, attach.connection));
    json(StatusCode::OK, &AttachSessionsAnswer::new(asked, attached))
}

async fn ask(
    app: &App,
    group: &Group,
    tenure: &TenureId,
    attaches: &[Attach],
    call: Call,
) -> Result<Attached, Failure> {
    check_attaches(attaches)?;
    let attached = app.write(app.store.attach(group, tenure, attaches, call)).await?;
    all_answered(attached.outcomes.len(), attaches.len(), CONNECTIONS)?;
    session_log::attached(group, tenure, attaches, &attached.outcomes);
    Ok(attached)
}

/// Detach a connection
///
/// The last one of a session starts its grace. A detach that is late is ignored: what is not attached, or was attached
/// again since `epoch`, stays as it is.
#[utoipa::path(
    delete, path = "/v1/groups/{g}/sessions/{s}/connections/{c}", tag = "sessions",
    security(("token" = ["beat"])),
    params(DetachQuery),
    responses(
        (status = 204, description = "It is gone, or was before"),
        Ended,
        Writes,
        (status = 409, description = "`not_holder` (`holder` and `tenure` say who is), `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn detach(
    State(app): State<Arc<App>>,
    Names((group, session, connection)): Names<(Group, SessionId, ConnectionId)>,
    Query(query): Query<DetachQuery>,
    Limits(call): Limits,
) -> Answer {
    let (tenure, detach) = query.request(session, connection)?;
    let outcomes = give_up(&app, &group, &tenure, std::slice::from_ref(&detach), call).await?;
    match only(outcomes, CONNECTIONS)? {
        DetachOutcome::NotHolder { by } => {
            let detail = format!(
                "{} of the session {} is held by {by}",
                detach.connection, detach.session
            );
            Err(Problem::new(Code::NotHolder, detail).with_holder(by).into())
        }
        DetachOutcome::Detached { .. } | DetachOutcome::NotAttached | DetachOutcome::Stale { .. } => Ok(no_content()),
    }
}

/// Detach many connections
///
/// At most 10,000, each answered by itself, in the order asked; applied in atomic parts of about 200. A body of up to four
/// times the usual limit is read.
#[utoipa::path(
    post, path = "/v1/groups/{g}/sessions-detach", tag = "sessions",
    security(("token" = ["beat"])),
    request_body = Detaches,
    responses((status = 200, description = "The answers, in the order asked", body = DetachSessionsAnswer), Ended, Writes)
)]
pub(crate) async fn detach_many(
    State(app): State<Arc<App>>,
    Names(group): Names<Group>,
    _: NoQuery,
    Limits(call): Limits,
    Json(Detaches { tenure, detaches }): Json<Detaches>,
) -> Answer {
    let outcomes = give_up(&app, &group, &tenure, &detaches, call).await?;
    json(StatusCode::OK, &DetachSessionsAnswer::new(detaches, outcomes))
}

async fn give_up(
    app: &App,
    group: &Group,
    tenure: &TenureId,
    detaches: &[Detach],
    call: Call,
) -> Result<Vec<DetachOutcome>, Failure> {
    check_count(detaches.len(), "detaches")?;
    let outcomes = app.write(app.store.detach(group, tenure, detaches, call)).await?;
    all_answered(outcomes.len(), detaches.len(), CONNECTIONS)?;
    session_log::detached(group, tenure, detaches, &outcomes);
    Ok(outcomes)
}

/// Change a session's data
///
/// Each field given replaces the old one, and `null` removes it. Doing it again is safe.
#[utoipa::path(
    patch, path = "/v1/groups/{g}/sessions/{s}", tag = "sessions",
    security(("token" = ["beat"])),
    request_body = PatchSessionRequest,
    responses(
        (status = 200, description = "The session now", body = Session),
        Ended,
        Writes,
        (status = 404, description = "`session_not_found`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`session_full`, `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn patch(
    State(app): State<Arc<App>>,
    Names((group, session)): Names<(Group, SessionId)>,
    _: NoQuery,
    Limits(call): Limits,
    Json(request): Json<PatchSessionRequest>,
) -> Answer {
    let PatchSessionRequest { data, tenure } = request;
    check_data(&data)?;
    let patched = app.store.patch_session(&group, &session, tenure.as_ref(), &data, call);
    match app.write(patched).await? {
        PatchOutcome::Patched(session) => json(StatusCode::OK, &session),
        PatchOutcome::NotFound => Err(not_found(&group, &session)),
        PatchOutcome::Full { of } => Err(full(&session, of)),
    }
}

/// Delete a session
///
/// With its data and its alias, and only when it has no connections; those of the dead count until the janitor has released
/// them. The header `Tenure-Session-Epoch` tells its last epoch.
#[utoipa::path(
    delete, path = "/v1/groups/{g}/sessions/{s}", tag = "sessions",
    security(("token" = ["beat"])),
    responses(
        (status = 204, description = "It is gone", headers(("Tenure-Session-Epoch" = u64, description = "Its last epoch"))),
        Writes,
        (status = 404, description = "`session_not_found`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`session_active` (`connections` says how many), `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Names((group, session)): Names<(Group, SessionId)>,
    _: NoQuery,
    Limits(call): Limits,
) -> Answer {
    match app.write(app.store.delete_session(&group, &session, call)).await? {
        DeleteOutcome::Deleted { epoch } => {
            session_log::deleted(&group, &session, epoch);
            let mut response = no_content();
            let epoch = HeaderValue::from(epoch.get());
            let name = HeaderName::from_static(SESSION_EPOCH);
            response.headers_mut().insert(name, epoch);
            Ok(response)
        }
        DeleteOutcome::Active { connections } => {
            let detail =
                format!("{session} has connections: {connections}; detach them, or end the tenures that hold them");
            let problem = Problem::new(Code::SessionActive, detail);
            Err(problem.with_connections(connections).into())
        }
        DeleteOutcome::NotFound => Err(not_found(&group, &session)),
    }
}

fn alias_taken(asked: &Attach, by: SessionId) -> Failure {
    let alias = asked.alias.as_ref().map_or("", |alias| alias.as_str());
    let detail = format!("the alias {alias} belongs to the session {by}");
    Problem::new(Code::AliasTaken, detail).with_session(by).into()
}

fn not_found(group: &Group, session: &SessionId) -> Failure {
    Failure::new(Code::SessionNotFound, format!("{group} has no session {session}"))
}

fn full(session: &SessionId, of: Limit) -> Failure {
    let detail = format!("the session {session} would have more than {of}");
    Problem::new(Code::SessionFull, detail).with_limit(of).into()
}
