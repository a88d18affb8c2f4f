//! Engagements: facts that are written down, and places that are reserved.

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
use crate::extract::{Json, Limits, Names, NoQuery, OptionalJson};
use crate::reply::{Answer, Failure, json};
use crate::routes::openapi::{RosterReads, RosterWrites};

/// Write an engagement down
///
/// A fact: it is taken also above the provider's capacity, and of one that is offline or deactivated. The same id again
/// gives the same answer.
#[utoipa::path(
    post, path = "/v1/rosters/{r}/engagements", tag = "rosters",
    security(("token" = ["write"])),
    request_body = EngagementRequest,
    responses(
        (status = 201, description = "It is written down, now or since an earlier call", body = Written<Engagement>),
        RosterWrites,
        (status = 404, description = "`not_found`: no such provider", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`engagement_conflict`: it is another provider's; `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Names(name): Names<RosterName>,
    _: NoQuery,
    Limits(call): Limits,
    Json(request): Json<EngagementRequest>,
) -> Answer {
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
/// To another status, to another provider, or both in one step. Moving it to where it is changes nothing; what is over stays
/// as it ended.
#[utoipa::path(
    patch, path = "/v1/rosters/{r}/engagements/{e}", tag = "rosters",
    security(("token" = ["write"])),
    request_body = Move,
    responses(
        (status = 200, description = "The engagement now", body = Written<Engagement>),
        RosterWrites,
        (status = 404, description = "`not_found`: no such engagement or provider", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`engagement_conflict`: it is over; `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn change(
    State(app): State<Arc<App>>,
    Names((name, engagement)): Names<(RosterName, EngagementId)>,
    _: NoQuery,
    Limits(call): Limits,
    Json(to): Json<Move>,
) -> Answer {
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

/// Look an engagement up
#[utoipa::path(
    get, path = "/v1/rosters/{r}/engagements/{e}", tag = "rosters", operation_id = "engagement",
    security(("token" = ["read"]), ("token" = ["write"])),
    responses((status = 200, description = "The engagement", body = Engagement), RosterReads)
)]
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    Names((name, engagement)): Names<(RosterName, EngagementId)>,
    _: NoQuery,
) -> Answer {
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

/// Reserve: take a place with whoever has room
///
/// The least occupied available provider gets the engagement, in one step: two callers cannot take the last place. The same
/// name again gives the same answer.
#[utoipa::path(
    post, path = "/v1/rosters/{r}/reserve", tag = "rosters",
    security(("token" = ["write"])),
    request_body(content = Option<ReserveRequest>, description = "May be left out"),
    responses(
        (status = 201, description = "The engagement has its provider, since now or since an earlier call", body = Written<Engagement>),
        RosterWrites,
        (status = 409, description = "`none_available`: nobody has room; `engagement_conflict`: it is over; `too_late`", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn reserve(
    State(app): State<Arc<App>>,
    caller: Caller,
    Names(name): Names<RosterName>,
    _: NoQuery,
    Limits(call): Limits,
    OptionalJson(request): OptionalJson<ReserveRequest>,
) -> Answer {
    let roster = app.roster(&name)?;
    let new = EngagementRequest::from(request).named(|| roster.name_engagement())?;
    new.check()?;
    let asked = roster.clone();
    match app.write_in(call, async move { asked.reserve(&new).await }).await? {
        Reservation::Reserved(written) => created(&name, written, "engagement reserved"),
        Reservation::NoneAvailable => {
            let message = match app.look_in(roster.exists()).await {
                Err(error) if error.kind() == ErrorKind::NotFound => app.no_roster(&caller, &name),
                _ => format!("nobody in the roster {name} is available"),
            };
            Err(Failure::new(Code::NoneAvailable, message))
        }
        Reservation::Conflict(row) => Err(conflict(row)),
    }
}

fn created(roster: &RosterName, written: Written<EngagementChange>, what: &str) -> Answer {
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
            "the engagement {} is {status}, with {provider}; it stays",
            row.engagement
        ),
        None => format!("the engagement {} is {status}; it stays", row.engagement),
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
