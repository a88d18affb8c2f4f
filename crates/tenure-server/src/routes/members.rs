//! Members: join, list, look up, leave.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use tenure::meters;
use tenure::wire::{
    Code, END_REASON, EndQuery, JoinAnswer, JoinRequest, LabelsRequest, Member, MembersPage, PageQuery, Problem, ms,
};
use tenure_core::id::{Group, MemberId, TenureId};
use tenure_core::membership::{End, EndBy, EndReason};
use tenure_core::store::Call;

use super::openapi::{EndedError, ReadErrors, WriteErrors};
use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::extract::{Json, NoQuery, NotAfter, PathParams, Query};
use crate::reply::{Failure, RouteResult, json, no_content};
use crate::room::Share;

/// Join: begin a tenure
///
/// Supersedes the member's current tenure, if there is one. Joining again after a lost answer is safe.
#[utoipa::path(
    post, path = "/v1/groups/{g}/members", tag = "members",
    security(("token" = ["beat"])),
    request_body = JoinRequest,
    responses((status = 201, description = "The new tenure", body = JoinAnswer), WriteErrors)
)]
pub(crate) async fn join(
    State(app): State<Arc<App>>,
    PathParams(group): PathParams<Group>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    share: Share,
    Json(request): Json<JoinRequest>,
) -> RouteResult {
    let _making = app.admit_group(&group, share).await?;
    let request = request.into();
    let joined = app.write(app.store.join(&group, &request, call));
    let joined = app.timed(joined, |joined| joined.as_of).await?;
    if let Some(sweeper) = &app.sweeper {
        sweeper.touch(&group);
    }
    let admits = |what| app.crowd.admits(&group, what, app.clock.mono());
    if let Some(tenure) = &joined.superseded {
        tenure::burst_line!(admits("superseded"), %group, %tenure, by = %joined.tenure, "superseded");
        meters::ended(&group, EndReason::Superseded, 1);
    }
    tenure::burst_line!(admits("joined"), %group, tenure = %joined.tenure, ttl_ms = ms(joined.ttl), "joined");
    let place = format!("/v1/groups/{group}/members/{}", joined.tenure.member());
    let mut response = json(StatusCode::CREATED, &JoinAnswer::from(joined))?;
    if let Ok(place) = HeaderValue::try_from(place) {
        response.headers_mut().insert(LOCATION, place);
    }
    Ok(response)
}

/// List the current members
#[utoipa::path(
    get, path = "/v1/groups/{g}/members", tag = "members",
    security(("token" = ["read"])),
    params(PageQuery),
    responses((status = 200, description = "A page of members", body = MembersPage), ReadErrors)
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    PathParams(group): PathParams<Group>,
    Query(query): Query<PageQuery>,
) -> RouteResult {
    let page = query.request()?;
    let members = app.read(app.store.members(&group, &page)).await?;
    json(StatusCode::OK, &MembersPage::from(members))
}

/// Get a member
#[utoipa::path(
    get, path = "/v1/groups/{g}/members/{m}", tag = "members",
    security(("token" = ["read"]), ("token" = ["beat"])),
    responses(
        (status = 200, description = "The member", body = Member),
        (status = 404, description = "`not_found`", body = Problem, content_type = "application/problem+json"),
        ReadErrors
    )
)]
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    PathParams((group, member)): PathParams<(Group, MemberId)>,
    _: NoQuery,
) -> RouteResult {
    match app.read(app.store.member(&group, &member)).await? {
        Some(found) => json(StatusCode::OK, &found),
        None => Err(Failure::new(
            Code::NotFound,
            format!("{group} has no member {member} with a current tenure"),
        )),
    }
}

/// Replace the labels of a living tenure
///
/// The tenure and its holdings stay. Labels that are left out are removed. Writes the event `labels_changed` if they differ.
#[utoipa::path(
    put, path = "/v1/groups/{g}/tenures/{t}/labels", tag = "members",
    security(("token" = ["beat"])),
    request_body = LabelsRequest,
    responses((status = 204, description = "These are the labels now"), EndedError, WriteErrors)
)]
pub(crate) async fn set_labels(
    State(app): State<Arc<App>>,
    PathParams((group, tenure)): PathParams<(Group, TenureId)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    Json(request): Json<LabelsRequest>,
) -> RouteResult {
    app.step(1, app.store.set_labels(&group, &tenure, &request.labels, call))
        .await?;
    Ok(no_content())
}

/// Leave: end a tenure
///
/// `expel` ends it on behalf of an operator and requires the scope `operate`. `no_progress` records that the work of the
/// member was stuck. `reason` is a text for the event and changes nothing else. Idempotent, also for a tenure that ended
/// otherwise or is unknown; the header `Tenure-End-Reason` says why it ended. Never affects a later tenure of the same member.
#[utoipa::path(
    delete, path = "/v1/groups/{g}/tenures/{t}", tag = "members",
    security(("token" = ["beat"]), ("token" = ["operate"])),
    params(EndQuery),
    responses(
        (status = 204, description = "The tenure has ended", headers(("Tenure-End-Reason" = String, description = "Why it ended"))),
        WriteErrors
    )
)]
pub(crate) async fn end(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathParams((group, tenure)): PathParams<(Group, TenureId)>,
    Query(query): Query<EndQuery>,
    NotAfter(call): NotAfter,
) -> RouteResult {
    let by = query.by()?;
    if by == EndBy::Expel {
        caller.check(Scope::Operate)?;
    } else {
        caller.check(Scope::Beat)?;
        app.check_leave(&caller, &group)?;
    }
    let text = query.reason;
    let end = End { tenure, by, text };
    end_by(&app, &group, end, call).await
}

async fn end_by(app: &App, group: &Group, end: End, call: Call) -> RouteResult {
    let (tenure, by) = (end.tenure.clone(), end.by);
    let reason = app.step(1, app.store.end_with(group, end, call)).await?;
    if reason == EndReason::NoProgress {
        meters::ended(group, reason, 1);
    }
    // Every expel is logged.
    let admitted = by == EndBy::Expel || app.crowd.admits(group, "ended", app.clock.mono());
    tenure::burst_line!(admitted, %group, %tenure, reason = reason.as_str(), asked = ?by, "ended");
    let mut response = no_content();
    let value = HeaderValue::from_static(reason.as_str());
    response
        .headers_mut()
        .insert(HeaderName::from_static(END_REASON), value);
    Ok(response)
}
