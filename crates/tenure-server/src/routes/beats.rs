//! Beats, one by one and in batches.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use tenure::meters;
use tenure::wire::{BeatItem, BeatRequest, BeatResult, BeatsAnswer, BeatsRequest, Renewed, ms};
use tenure_core::error::{Error, ErrorKind};
use tenure_core::id::{Group, TenureId};
use tenure_core::membership::{Beat, BeatReply, Beaten, EndReason, MAX_BEATS};

use super::openapi::{Ended, Writes};
use crate::app::App;
use crate::extract::{Json, Names, NoQuery, OptionalJson};
use crate::reply::{Answer, json};

/// Beat: extend a tenure
///
/// Beats that arrive together travel to the store together. A late beat revives nobody.
#[utoipa::path(
    put, path = "/v1/groups/{g}/tenures/{t}/beat", tag = "beats",
    params(("g" = String, Path, description = "The group"), ("t" = String, Path, description = "The tenure")),
    request_body(content = Option<BeatRequest>, description = "May be left out"),
    responses((status = 200, description = "It goes on", body = Renewed), Ended, Writes)
)]
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Names((group, tenure)): Names<(Group, TenureId)>,
    _: NoQuery,
    OptionalJson(request): OptionalJson<BeatRequest>,
) -> Answer {
    let beat = Beat::from(BeatItem {
        tenure,
        ttl_ms: request.ttl_ms,
    });
    let tenure = beat.tenure.clone();
    let beaten = app.read(app.beats.beat(&group, beat)).await?;
    app.learn(beaten.as_of);
    match beaten.reply {
        BeatReply::Renewed { expires_in } => json(
            StatusCode::OK,
            &Renewed {
                expires_in_ms: ms(expires_in),
            },
        ),
        BeatReply::Ended(reason) => Err(Error::ended(tenure, reason).into()),
        BeatReply::Unknown => Err(Error::ended(tenure, EndReason::Unknown).into()),
    }
}

/// Beat for many tenures at once
///
/// At most 10,000, each answered by itself: one that ended fails no other. A body of up to four times the usual limit is
/// read. A malformed id or ttl refuses the whole batch and names its index: it can only be a bug, and half-done batches
/// hide bugs.
#[utoipa::path(
    post, path = "/v1/groups/{g}/beats", tag = "beats",
    params(("g" = String, Path, description = "The group")),
    request_body = BeatsRequest,
    responses((status = 200, description = "The answers, in the order asked", body = BeatsAnswer), Writes)
)]
pub(crate) async fn many(
    State(app): State<Arc<App>>,
    Names(group): Names<Group>,
    _: NoQuery,
    Json(request): Json<BeatsRequest, 4>,
) -> Answer {
    if request.beats.len() > MAX_BEATS {
        let count = request.beats.len();
        return Err(Error::invalid(format!("{count} beats in one call; at most {MAX_BEATS}")).into());
    }
    let beats: Vec<Beat> = request.beats.into_iter().map(Into::into).collect();
    let beaten = app.read(app.store.beat(&group, &beats)).await?;
    if beaten.replies.len() != beats.len() {
        return Err(Error::new(ErrorKind::Internal, "the store answered fewer beats than it was asked").into());
    }
    app.learn(beaten.as_of);
    count(&beaten);
    let results = beats
        .into_iter()
        .zip(beaten.replies)
        .map(|(beat, reply)| BeatResult::new(beat.tenure, reply))
        .collect();
    json(
        StatusCode::OK,
        &BeatsAnswer {
            results,
            as_of: beaten.as_of,
        },
    )
}

fn count(beaten: &Beaten) {
    let of = |wanted: fn(&BeatReply) -> bool| beaten.replies.iter().filter(|reply| wanted(reply)).count() as u64;
    let outcomes = [
        ("renewed", of(|reply| matches!(reply, BeatReply::Renewed { .. }))),
        ("ended", of(|reply| matches!(reply, BeatReply::Ended(_)))),
        ("unknown", of(|reply| matches!(reply, BeatReply::Unknown))),
    ];
    for (outcome, count) in outcomes.into_iter().filter(|(_, count)| *count > 0) {
        meters::beats(outcome, count);
    }
}
