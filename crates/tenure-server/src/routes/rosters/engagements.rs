//! Engagements: created as facts, or by reservation.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use tenure::roster::{EngagementAnswer, Reservation, Written};
use tenure::wire::roster::{EngagementRequest, ReserveRequest};
use tenure::wire::{Code, Problem};
use tenure_core::error::ErrorKind;
use tenure_core::id::{EngagementId, RosterName};
use tenure_core::ledger::{Engagement, EngagementChange, Move};

use crate::app::App;
use crate::auth::Caller;
use crate::extract::{Json, NoQuery, NotAfter, OptionalJson, PathParams};
use crate::reply::{Failure, RouteResult, json};
use crate::routes::openapi::{RosterReadErrors, RosterWriteErrors};

/// Create an engagement
///
/// Records a fact: it is accepted above the provider's capacity, and for a provider that is offline or deactivated.
/// Repeating an id returns the same answer.
#[utoipa::path(
    post, path = "/v1/rosters/{r}/engagements", tag = "rosters",
    security(("token" = ["write"])),
    request_body = EngagementRequest,
    responses(
        (status = 201, description = "The engagement exists, from this or an earlier call", body = Written<Engagement>),
        RosterWriteErrors,
        (status = 404, description = "`not_found`: no such provider", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`engagement_conflict`: it is over, or belongs to another provider; `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    PathParams(name): PathParams<RosterName>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    Json(request): Json<EngagementRequest>,
) -> RouteResult {
    let roster = app.roster(&name)?;
    let new = request.named(|| roster.name_engagement())?;
    new.check()?;
    match app
        .write_in(call, async move { roster.create_engagement(&new).await })
        .await?
    {
        EngagementAnswer::Done(written) => created(&name, written, "engagement created"),
        EngagementAnswer::Conflict(row) => Err(conflict(row)),
    }
}

/// Move an engagement
///
/// Changes its status, its provider, or both in one step. A move to the current state changes nothing; an engagement that
/// is over cannot move.
#[utoipa::path(
    patch, path = "/v1/rosters/{r}/engagements/{e}", tag = "rosters",
    security(("token" = ["write"])),
    request_body = Move,
    responses(
        (status = 200, description = "The engagement now", body = Written<Engagement>),
        RosterWriteErrors,
        (status = 404, description = "`not_found`: no such engagement or provider", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`engagement_conflict`: it is over; `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn change(
    State(app): State<Arc<App>>,
    PathParams((name, engagement)): PathParams<(RosterName, EngagementId)>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    Json(to): Json<Move>,
) -> RouteResult {
    let roster = app.roster(&name)?;
    to.check()?;
    let work = async move { roster.move_engagement(&engagement, &to).await };
    match app.write_in(call, work).await? {
        EngagementAnswer::Done(written) => {
            tell(&name, &written, "engagement moved");
            json(StatusCode::OK, &shown(written))
        }
        EngagementAnswer::Conflict(row) => Err(conflict(row)),
    }
}

/// Get an engagement
#[utoipa::path(
    get, path = "/v1/rosters/{r}/engagements/{e}", tag = "rosters", operation_id = "engagement",
    security(("token" = ["read"]), ("token" = ["write"])),
    responses((status = 200, description = "The engagement", body = Engagement), RosterReadErrors)
)]
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathParams((name, engagement)): PathParams<(RosterName, EngagementId)>,
    _: NoQuery,
) -> RouteResult {
    let roster = app.roster(&name)?;
    match app
        .look_in_roster(&caller, &name, roster.engagement(&engagement))
        .await?
    {
        Some(row) => json(StatusCode::OK, &row),
        None => {
            let message = format!("the roster {name} has no engagement {engagement}");
            Err(Failure::new(Code::NotFound, message))
        }
    }
}

/// Reserve a provider
///
/// Creates the engagement with the least occupied available provider, or with the named one, in one step: two callers cannot
/// take the last place. Repeating an id returns the same answer.
#[utoipa::path(
    post, path = "/v1/rosters/{r}/reserve", tag = "rosters",
    security(("token" = ["write"])),
    request_body(content = Option<ReserveRequest>, description = "May be left out"),
    responses(
        (status = 201, description = "The engagement with its provider, from this or an earlier call", body = Written<Engagement>),
        RosterWriteErrors,
        (status = 404, description = "`not_found`: no such provider", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`none_available`: no provider has room; `engagement_conflict`: it is over, or belongs to another provider; `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn reserve(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathParams(name): PathParams<RosterName>,
    _: NoQuery,
    NotAfter(call): NotAfter,
    OptionalJson(request): OptionalJson<ReserveRequest>,
) -> RouteResult {
    let roster = app.roster(&name)?;
    let except = request.except.clone();
    let new = EngagementRequest::from(request).named(|| roster.name_engagement())?;
    new.check()?;
    let (asked, only) = (roster.clone(), new.provider.clone());
    let work = async move { asked.reserve_except(&new, &except).await };
    match app.write_in(call, work).await? {
        Reservation::Reserved(written) => created(&name, written, "engagement reserved"),
        Reservation::NoneAvailable => {
            let message = match app.look_in(roster.exists()).await {
                Err(error) if error.kind() == ErrorKind::NotFound => app.no_roster(&caller, &name),
                _ => only.map_or_else(
                    || format!("no provider in the roster {name} is available"),
                    |provider| format!("the provider {provider} of the roster {name} is offline or full"),
                ),
            };
            Err(Failure::new(Code::NoneAvailable, message))
        }
        Reservation::Conflict(row) => Err(conflict(row)),
    }
}

fn created(roster: &RosterName, written: Written<EngagementChange>, what: &str) -> RouteResult {
    tell(roster, &written, what);
    let place = format!(
        "/v1/rosters/{roster}/engagements/{}",
        written.value.engagement.engagement
    );
    let mut response = json(StatusCode::CREATED, &shown(written))?;
    if let Ok(place) = HeaderValue::try_from(place) {
        response.headers_mut().insert(LOCATION, place);
    }
    Ok(response)
}

fn shown(written: Written<EngagementChange>) -> Written<Engagement> {
    written.map(|change| change.engagement)
}

fn conflict(row: Engagement) -> Failure {
    let status = row.status.as_str();
    let message = match &row.provider {
        Some(provider) => format!(
            "the engagement {} is {status}, with {provider}; it was not changed",
            row.engagement
        ),
        None => format!("the engagement {} is {status}; it was not changed", row.engagement),
    };
    Problem::new(Code::EngagementConflict, message)
        .with_engagement(row)
        .into()
}

fn tell(roster: &RosterName, written: &Written<EngagementChange>, what: &str) {
    if written.changed {
        let row = &written.value.engagement;
        let provider = row.provider.as_ref().map(tracing::field::display);
        let (engagement, status) = (&row.engagement, row.status.as_str());
        tracing::info!(%roster, %engagement, provider, status, mirrored = written.mirrored, "{what}");
    }
}
