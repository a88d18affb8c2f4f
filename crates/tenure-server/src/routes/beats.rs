//! Beats, single and in batches.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use tenure::meters;
use tenure::wire::{BeatRequest, BeatsAnswer, Renewed, ms};
use tenure_core::error::{Error, ErrorKind};
use tenure_core::id::{Group, TenureId};
use tenure_core::membership::{Beat, BeatReplies, BeatReply, Beats, MAX_BEATS};

use super::openapi::{EndedError, WriteErrors};
use crate::app::App;
use crate::extract::{Json, NoQuery, OptionalJson, PathParams};
use crate::own_beat::OwnRequest;
use crate::reply::{RouteResult, json, json_bytes};

/// Beat: extend a tenure
///
/// Concurrent beats to a store that other daemons share are sent in one batch. A beat after the end of its tenure never revives it.
#[utoipa::path(
    put, path = "/v1/groups/{g}/tenures/{t}/beat", tag = "beats",
    security(("token" = ["beat"])),
    request_body(content = Option<BeatRequest>, description = "May be left out"),
    responses((status = 200, description = "The tenure is extended", body = Renewed), EndedError, WriteErrors)
)]
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    PathParams((group, tenure)): PathParams<(Group, TenureId)>,
    _: NoQuery,
    OptionalJson(request): OptionalJson<BeatRequest>,
) -> RouteResult {
    let beat = Beat {
        tenure,
        ttl: request.ttl_ms.map(Duration::from_millis),
        revision: request.revision,
        seen: request.seen,
    };
    let tenure = beat.tenure.clone();
    let beaten = app.step(1, app.beats.beat(&group, beat)).await?;
    app.learn(beaten.as_of, beaten.asked, beaten.arrived);
    let (expires_in, revision) = beaten.reply.renewed(&tenure)?;
    let expires_in_ms = ms(expires_in);
    json(
        StatusCode::OK,
        &Renewed {
            expires_in_ms,
            revision,
        },
    )
}

/// Beat for many tenures
///
/// At most 10,000, each with its own result. The body limit is four times the usual one. A malformed id or a ttl outside the
/// limits rejects the whole batch, since it can only be a bug in the client; the error names the index or the value. On a
/// full disk, beats that need a write are `refused` and the others are answered; if all are refused, so is the batch
/// (`store_unavailable`).
#[utoipa::path(
    post, path = "/v1/groups/{g}/beats", tag = "beats",
    security(("token" = ["beat"])),
    request_body = Beats,
    responses((status = 200, description = "The answers, in the order asked", body = BeatsAnswer), WriteErrors)
)]
pub(crate) async fn many(
    State(app): State<Arc<App>>,
    PathParams(group): PathParams<Group>,
    _: NoQuery,
    own: Option<Extension<OwnRequest>>,
    Json(Beats { beats }): Json<Beats>,
) -> RouteResult {
    if own.is_some() {
        let as_of = app.pulser.beat().await?.as_of;
        let replies = Vec::new();
        return Ok(json_bytes(
            StatusCode::OK,
            write(&beats, &BeatReplies { replies, as_of }).into(),
        ));
    }
    if beats.len() > MAX_BEATS {
        let count = beats.len();
        return Err(Error::invalid(format!("{count} beats in one call; at most {MAX_BEATS}")).into());
    }
    let beaten = app.step(beats.len(), app.store.beat(&group, &beats));
    let beaten = app.timed(beaten, |beaten| beaten.as_of).await?;
    if beaten.replies.len() != beats.len() {
        return Err(Error::new(ErrorKind::Internal, "the store answered fewer beats than were sent").into());
    }
    meters::beaten(beaten.replies.iter().copied());
    Ok(json_bytes(StatusCode::OK, write(&beats, &beaten).into()))
}

/// Writes a [`BeatsAnswer`](tenure::wire::BeatsAnswer) by hand: 0.1 µs per beat (measured) instead of 0.7 with serde, which
/// makes a `String` of each tenure id. Names need no escaping: their alphabet contains nothing that JSON escapes.
fn write(beats: &[Beat], beaten: &BeatReplies) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + beats.len() * 112);
    out.extend_from_slice(b"{\"results\":[");
    for (beat, reply) in beats.iter().zip(&beaten.replies) {
        if out.last() == Some(&b'}') {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"tenure\":\"");
        out.extend_from_slice(beat.tenure.member().as_str().as_bytes());
        out.push(b'@');
        number(&mut out, beat.tenure.term().get());
        match reply {
            BeatReply::Renewed { expires_in, revision } => {
                out.extend_from_slice(b"\",\"status\":\"renewed\",\"expires_in_ms\":");
                number(&mut out, ms(*expires_in));
                if !revision.is_none() {
                    out.extend_from_slice(b",\"revision\":");
                    number(&mut out, revision.0);
                }
                out.push(b'}');
            }
            BeatReply::Ended(reason) => {
                out.extend_from_slice(b"\",\"status\":\"ended\",\"reason\":\"");
                out.extend_from_slice(reason.as_str().as_bytes());
                out.extend_from_slice(b"\"}");
            }
            BeatReply::Unknown => out.extend_from_slice(b"\",\"status\":\"unknown\"}"),
            BeatReply::Refused => out.extend_from_slice(b"\",\"status\":\"refused\"}"),
        }
    }
    out.extend_from_slice(b"],\"as_of\":\"");
    out.extend_from_slice(beaten.as_of.to_string().as_bytes());
    out.extend_from_slice(b"\"}");
    out
}

/// Writes a number in decimal without `std::fmt`.
fn number(out: &mut Vec<u8>, mut number: u64) {
    let (mut digits, mut from) = ([0u8; 20], 20);
    loop {
        from -= 1;
        digits[from] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[from..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tenure::wire::BeatResult;
    use tenure_core::membership::{EndReason, Revision};
    use tenure_core::time::StoreTime;

    #[test]
    fn handwritten_json_equals_serde() {
        let replies = [
            BeatReply::Renewed {
                expires_in: Duration::from_micros(30_000_900),
                revision: Revision(1_763_676_800_000_007),
            },
            BeatReply::Ended(EndReason::Superseded),
            BeatReply::Unknown,
            BeatReply::Refused,
            BeatReply::Renewed {
                expires_in: Duration::ZERO,
                revision: Revision::NONE,
            },
        ];
        let tenures = [
            "a@1",
            "pod-7:a.b_c@1763676800000000",
            "x@9007199254740991",
            "y@10",
            "z@11",
        ];
        for count in 0..=replies.len() {
            let beats: Vec<Beat> = tenures[..count]
                .iter()
                .map(|t| Beat {
                    tenure: t.parse().unwrap(),
                    ttl: None,
                    revision: Revision::NONE,
                    seen: Revision::NONE,
                })
                .collect();
            let beaten = BeatReplies {
                replies: replies[..count].to_vec(),
                as_of: StoreTime::from_micros(1_763_676_800_000_042),
            };
            let results = beats.iter().zip(&beaten.replies);
            let results = results
                .map(|(beat, reply)| BeatResult::new(beat.tenure.clone(), *reply))
                .collect();
            let by_serde = serde_json::to_string(&BeatsAnswer {
                results,
                as_of: beaten.as_of,
            })
            .unwrap();
            assert_eq!(String::from_utf8(write(&beats, &beaten)).unwrap(), by_serde);
        }
    }
}
