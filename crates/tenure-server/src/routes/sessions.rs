//! Sessions: attach, detach, patch, delete; single and in batches.

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

use super::openapi::{EndedError, WriteErrors};
use crate::app::App;
use crate::extract::{Json, NoQuery, NotAfter, PathParams, Query};
use crate::reply::{Failure, RouteResult, all_answered, json, no_content, only};
use crate::session_log;

/// The noun in messages.
const CONNECTIONS: &str = "connections";

/// Attach a connection
///
/// Creates the session, adds a connection, or resumes the session, in one step. Repeating the call only raises the epoch, so a
/// lost answer is harmless. An orphan is never resumed: this call reaps it and creates a new session.
#[utoipa::path(
    put, path = "/v1/groups/{g}/sessions/{s}", tag = "sessions",
    security(("token" = ["beat"])),
    request_body = AttachRequest,
    responses(
        (status = 200, description = "The connection was added, or the session resumed", body = AttachAnswer),
        (status = 201, description = "The session was created", body = AttachAnswer),
        EndedError,
        WriteErrors,
        (status = 404, description = "`session_not_found`: with `resume_only`, there is no session to resume", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`alias_taken` (see `session`), `session_full` (see `limit`), `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn attach(
    State(app): State<Arc<App>>,
    PathParams((group, session)): PathParams<(Group, SessionId)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    Json(request): Json<AttachRequest>,
) -> RouteResult {
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
/// At most 10,000, each with its own result, in request order; applied in atomic parts of about 200. An empty list only checks
/// the tenure. The body limit is four times the usual one.
#[utoipa::path(
    post, path = "/v1/groups/{g}/sessions-attach", tag = "sessions",
    security(("token" = ["beat"])),
    request_body = Attaches,
    responses((status = 200, description = "The answers, in the order asked", body = AttachSessionsAnswer), EndedError, WriteErrors)
)]
pub(crate) async fn attach_many(
    State(app): State<Arc<App>>,
    PathParams(group): PathParams<Group>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    Json(Attaches { tenure, attaches }): Json<Attaches>,
) -> RouteResult {
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
/// Detaching the last connection starts the session's grace period. A late detach is ignored: a connection that is not
/// attached, or was attached again since `epoch`, does not change.
#[utoipa::path(
    delete, path = "/v1/groups/{g}/sessions/{s}/connections/{c}", tag = "sessions",
    security(("token" = ["beat"])),
    params(DetachQuery),
    responses(
        (status = 204, description = "The connection is not attached"),
        EndedError,
        WriteErrors,
        (status = 409, description = "`not_holder` (see `holder` and `tenure`), `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn detach(
    State(app): State<Arc<App>>,
    PathParams((group, session, connection)): PathParams<(Group, SessionId, ConnectionId)>,
    Query(query): Query<DetachQuery>,
    NotAfter(call): NotAfter,
) -> RouteResult {
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
/// At most 10,000, each with its own result, in request order; applied in atomic parts of about 200. The body limit is four
/// times the usual one.
#[utoipa::path(
    post, path = "/v1/groups/{g}/sessions-detach", tag = "sessions",
    security(("token" = ["beat"])),
    request_body = Detaches,
    responses((status = 200, description = "The answers, in the order asked", body = DetachSessionsAnswer), EndedError, WriteErrors)
)]
pub(crate) async fn detach_many(
    State(app): State<Arc<App>>,
    PathParams(group): PathParams<Group>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    Json(Detaches { tenure, detaches }): Json<Detaches>,
) -> RouteResult {
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
/// Each given field replaces the old one; `null` removes it. Idempotent.
#[utoipa::path(
    patch, path = "/v1/groups/{g}/sessions/{s}", tag = "sessions",
    security(("token" = ["beat"])),
    request_body = PatchSessionRequest,
    responses(
        (status = 200, description = "The changed session", body = Session),
        EndedError,
        WriteErrors,
        (status = 404, description = "`session_not_found`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`session_full`, `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn patch(
    State(app): State<Arc<App>>,
    PathParams((group, session)): PathParams<(Group, SessionId)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    Json(request): Json<PatchSessionRequest>,
) -> RouteResult {
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
/// Deletes its data and alias, too. It must have no connections; those of a dead member count until the janitor releases them.
/// The header `Tenure-Session-Epoch` is its last epoch.
#[utoipa::path(
    delete, path = "/v1/groups/{g}/sessions/{s}", tag = "sessions",
    security(("token" = ["beat"])),
    responses(
        (status = 204, description = "Deleted", headers(("Tenure-Session-Epoch" = u64, description = "Its last epoch"))),
        WriteErrors,
        (status = 404, description = "`session_not_found`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`session_active` (see `connections`), `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    PathParams((group, session)): PathParams<(Group, SessionId)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
) -> RouteResult {
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
