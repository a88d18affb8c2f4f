//! Arguments and replies of the steps that change sessions.

use std::time::Duration;

use redis::Value as Reply;
use serde_json::Value;
use tenure_core::id::SessionId;
use tenure_core::session::{
    Attach, AttachOutcome, Data, DetachOutcome, Epoch, How, Limit, PatchOutcome, Session, SessionState,
};
use tenure_core::time::{StoreTime, micros};

use super::row::{field_value, valid_alias};
use crate::reply::{Malformed, Read, Reader, parse};
use crate::script::Invocation;

/// How many attaches one script takes at most: each writes to about six keys.
const ATTACHES: usize = 50;
/// A part ends once it has this many bytes of data.
const LONG: usize = 1 << 20;

/// How many of these attaches one step takes; at least one, if there is any.
pub(crate) fn part_of(attaches: &[Attach]) -> usize {
    let (mut length, mut count) = (0, 0);
    for attach in attaches.iter().take(ATTACHES) {
        if length > LONG {
            break;
        }
        length += attach.data.values().map(|value| json(value).len()).sum::<usize>();
        count += 1;
    }
    count
}

/// The stored form of a value; empty to remove the field.
pub(super) fn json(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        value => value.to_string(),
    }
}

pub(super) fn attach_args(invocation: Invocation, attach: &Attach) -> Invocation {
    invocation
        .arg(attach.session.as_str())
        .arg(attach.connection.as_str())
        .arg(attach.alias.as_ref().map_or("", |alias| alias.as_str()))
        .number(attach.grace.map_or(0, micros))
        .arg(if attach.resume_only { "1" } else { "0" })
        .number(attach.data.len() as u64)
        .args(
            attach
                .data
                .iter()
                .flat_map(|(field, value)| [field.clone(), json(value)]),
        )
}

/// The outcomes of the first attaches: of all, unless the reply got large.
pub(super) fn read_attached(reader: &mut Reader, part: &[Attach], now: StoreTime) -> Read<Vec<AttachOutcome>> {
    let mut rows = reader.array()?;
    if rows.left() > part.len() || (rows.left() == 0 && !part.is_empty()) {
        return Err(Malformed(format!("{} outcomes for {}", rows.left(), part.len())));
    }
    let mut outcomes = Vec::with_capacity(rows.left());
    for attach in part.iter().take(rows.left()) {
        outcomes.push(match rows.value()? {
            Reply::Array(row) => {
                let (how, session) = read_seen(Reply::Array(row), &attach.session, now)?;
                let how = match how {
                    1 => How::Created,
                    2 => How::Attached,
                    3 => How::Resumed,
                    other => return Err(Malformed(format!("the outcome {other}"))),
                };
                AttachOutcome::Attached {
                    how,
                    session: Box::new(session),
                }
            }
            other => read_refused(&other)?,
        });
    }
    Ok(outcomes)
}

fn read_refused(value: &Reply) -> Read<AttachOutcome> {
    let text = text_of(value)?;
    Ok(match (text.get(..1), text.get(1..)) {
        (Some("g"), Some("")) => AttachOutcome::Gone,
        (Some("f"), Some("")) => AttachOutcome::Full { of: Limit::Fields },
        (Some("c"), Some("")) => AttachOutcome::Full { of: Limit::Connections },
        (Some("n"), Some(by)) => AttachOutcome::AliasTaken {
            by: SessionId::new(by).map_err(|_| Malformed("a session without a name".to_owned()))?,
        },
        _ => return Err(Malformed("not an attach outcome".to_owned())),
    })
}

pub(super) fn read_patched(value: &Reply, session: &SessionId, now: StoreTime) -> Read<PatchOutcome> {
    if let Reply::Array(_) = value {
        let (_, session) = read_seen(value.clone(), session, now)?;
        return Ok(PatchOutcome::Patched(Box::new(session)));
    }
    match text_of(value)?.as_str() {
        "n" => Ok(PatchOutcome::NotFound),
        "f" => Ok(PatchOutcome::Full { of: Limit::Fields }),
        other => Err(Malformed(format!("the outcome {other:?}"))),
    }
}

fn text_of(value: &Reply) -> Read<String> {
    Reader::new(Reply::Array(vec![value.clone()]))?.text()
}

/// Reads a session as returned by `seen` of `session_data.lua`, and the number before it.
fn read_seen(value: Reply, session: &SessionId, now: StoreTime) -> Read<(u64, Session)> {
    let mut row = Reader::new(value)?;
    let (first, epoch) = (row.number()?, row.number()?);
    let (created_at, updated_at, grace) = (row.time()?, row.time()?, row.number()?);
    let (alias, connections) = (row.maybe_text()?, row.number()?);
    let (reap_at, granted, over_at) = (row.time()?, Duration::from_micros(row.number()?), row.time()?);
    let away = reap_at > StoreTime::ZERO;
    let mut fields = row.array()?;
    let mut data = Data::new();
    while fields.left() > 1 {
        data.insert(
            fields.lossy_text()?,
            field_value(&fields.maybe_bytes()?.unwrap_or_default()),
        );
    }
    let seen = Session {
        session: session.clone(),
        state: match away {
            true if now >= over_at => SessionState::Orphan,
            false if connections > 0 => SessionState::Active,
            _ => SessionState::Disconnected,
        },
        connections,
        alias: alias.as_deref().and_then(valid_alias),
        data,
        epoch: Epoch::new(epoch).map_err(|_| Malformed(format!("the epoch {epoch}")))?,
        created_at,
        updated_at,
        grace: (grace > 0).then(|| Duration::from_micros(grace)),
        disconnected_at: away.then(|| reap_at.minus(granted)),
        reap_in: away.then(|| over_at.since(now)),
    };
    Ok((first, seen))
}

/// Parses the result of `detach.lua` for one connection.
pub(super) fn read_detached(text: &str) -> Read<DetachOutcome> {
    match (text.get(..1), text.get(1..)) {
        (Some("d"), Some("")) => Ok(DetachOutcome::Detached { reap_in: None }),
        (Some("l"), Some(grace)) => Ok(DetachOutcome::Detached {
            reap_in: Some(Duration::from_micros(parse("a grace", grace)?)),
        }),
        (Some("n"), Some("")) => Ok(DetachOutcome::NotAttached),
        (Some("h"), Some(by)) => Ok(DetachOutcome::NotHolder {
            by: parse("a tenure", by)?,
        }),
        (Some("s"), Some(epoch)) => Ok(DetachOutcome::Stale {
            epoch: Epoch::new(parse("an epoch", epoch)?).map_err(|_| Malformed(format!("the epoch {epoch}")))?,
        }),
        _ => Err(Malformed("not a detach outcome".to_owned())),
    }
}
