//! Arguments and replies of the steps that change a roster.

use std::time::Duration;

use redis::Value;
use tenure_core::id::{ProviderId, TenureId, Term};
use tenure_core::ledger::{RosterSettings, Version};
use tenure_core::membership::EndReason;
use tenure_core::roster::{
    EnsuredTenure, Heartbeat, HeartbeatReply, MirrorEntry, MirrorStatus, Offlined, Overwrite, Pending, Put, PutOutcome,
    Standing, Turn,
};
use tenure_core::time::{StoreTime, micros};

use super::row;
use crate::reply::{Malformed, Read, Reader, parse};
use crate::script::Invocation;
use crate::sweep::read_brake;
use crate::view::double;

/// The mirror's state that every reply carries.
pub(super) fn read_stamp(reader: &mut Reader, now: StoreTime) -> Read<MirrorStatus> {
    let mut stamp = reader.array()?;
    Ok(MirrorStatus {
        seeded: stamp.number()? != 0,
        high: Version(stamp.number()?),
        settings: Version(stamp.number()?),
        resumed_at: stamp.time()?,
        as_of: now,
    })
}

/// The rows of a reply; fails unless there are as many as asked for.
pub(super) fn each<T>(rows: &mut Reader, wanted: usize, read: impl Fn(&mut Reader) -> Read<T>) -> Read<Vec<T>> {
    if rows.left() != wanted {
        return Err(Malformed(format!("{} answers for {wanted}", rows.left())));
    }
    let mut all = Vec::with_capacity(wanted);
    while rows.left() > 0 {
        all.push(read(rows)?);
    }
    Ok(all)
}

/// The overwrite rule as text: empty to overwrite older versions only, else the version.
pub(super) fn show_over(over: Overwrite) -> String {
    match over {
        Overwrite::Older => String::new(),
        Overwrite::Exactly(version) => version.to_string(),
    }
}

/// A put as four arguments.
pub(super) fn put_args(put: &Put) -> [Vec<u8>; 4] {
    let packed = match &put.entry {
        MirrorEntry::Row(provider) => row::pack(provider),
        MirrorEntry::Gone { .. } => Vec::new(),
    };
    [
        put.entry.provider().as_str().as_bytes().to_vec(),
        show_over(put.over).into_bytes(),
        put.entry.version().to_string().into_bytes(),
        packed,
    ]
}

pub(super) fn read_put(rows: &mut Reader) -> Read<PutOutcome> {
    let mut row = rows.array()?;
    Ok(PutOutcome {
        applied: row.number()? != 0,
        version: Version(row.number()?),
        standing: read_standing(row.number()?)?,
    })
}

/// The standing of a tenure, by its number in the scripts.
pub(super) fn read_standing(number: u64) -> Read<Standing> {
    Ok(match number {
        0 => Standing::Offline,
        1 => Standing::Alive,
        2 => Standing::Ended,
        3 => Standing::Unknown,
        other => return Err(Malformed(format!("the standing {other}"))),
    })
}

pub(super) fn read_seated(rows: &mut Reader, part: &[ProviderId]) -> Read<Vec<EnsuredTenure>> {
    let seats = each(rows, part.len(), |rows| {
        let mut row = rows.array()?;
        Ok((row.number()?, row.number()? != 0))
    })?;
    let with_names = part.iter().zip(seats);
    with_names
        .map(|(provider, (term, new))| {
            let term = Term::new(term).map_err(|_| Malformed(format!("the term {term}")))?;
            let tenure = TenureId::new(provider.member(), term);
            Ok(EnsuredTenure { tenure, new })
        })
        .collect()
}

pub(super) fn heartbeat_args(invocation: Invocation, part: &[Heartbeat]) -> Invocation {
    let issued: Vec<u8> = match part.iter().any(|heartbeat| heartbeat.issued_at.is_some()) {
        true => part
            .iter()
            .flat_map(|heartbeat| {
                let issued_at = heartbeat.issued_at;
                issued_at.map_or((-1.0_f64).to_le_bytes(), |at| double(at.micros()))
            })
            .collect(),
        false => Vec::new(),
    };
    invocation
        .number(part.len() as u64)
        .arg(issued)
        .args(part.iter().map(|heartbeat| heartbeat.provider.as_str()))
}

/// One reply for all heartbeats, or one per heartbeat.
pub(super) fn read_heard(reader: &mut Reader, wanted: usize) -> Read<Vec<HeartbeatReply>> {
    match reader.value()? {
        Value::Int(1) => Ok(vec![HeartbeatReply::Recorded; wanted]),
        own => each(&mut Reader::new(own)?, wanted, |replies| {
            Ok(match replies.number()? {
                1 => HeartbeatReply::Recorded,
                2 => HeartbeatReply::Offline,
                3 => HeartbeatReply::Deactivated,
                4 => HeartbeatReply::Revoked,
                5 => HeartbeatReply::Unknown,
                6 => HeartbeatReply::Absent,
                other => return Err(Malformed(format!("the reply {other} to a heartbeat"))),
            })
        }),
    }
}

pub(super) fn read_pending(reader: &mut Reader) -> Read<Pending> {
    let (mut rows, mut items) = (reader.array()?, Vec::new());
    while rows.left() > 1 {
        let (tenure, record) = (rows.text()?, rows.text()?);
        // A record damaged by another program must not block the others; the next reconcile repairs it.
        match read_offlined(&tenure, &record) {
            Ok(offlined) => items.push(offlined),
            Err(Malformed(what)) => tracing::warn!(%tenure, what, "an unreadable end is skipped"),
        }
    }
    let next = match reader.number()? {
        0 => None,
        at => Some(StoreTime::from_micros(at)),
    };
    let braked = read_brake(reader)?;
    Ok(Pending { items, next, braked })
}

/// Parses the record of an end that the ledger has not applied yet: `reason at heard ended`.
fn read_offlined(tenure: &str, record: &str) -> Read<Offlined> {
    let bad = || Malformed(format!("{record:?} in place of an end"));
    let mut parts = record.split(' ');
    let mut part = || parts.next().ok_or_else(bad);
    let time = |text: &str| text.parse().map(StoreTime::from_micros).map_err(|_| bad());
    Ok(Offlined {
        tenure: parse("a tenure", tenure)?,
        reason: EndReason::parse(part()?).ok_or_else(bad)?,
        at: time(part()?)?,
        heard_at: match part()? {
            "-" => None,
            at => Some(time(at)?),
        },
    })
}

/// The stored form of settings: `version capacity stale_after required snapshot`, times in µs.
pub(super) fn show_settings(settings: &RosterSettings) -> String {
    format!(
        "{} {} {} {} {}",
        settings.version,
        settings.default_capacity,
        micros(settings.stale_after),
        u8::from(settings.require_heartbeat),
        micros(settings.snapshot),
    )
}

/// Parses settings. `None` for text that no script of Tenure wrote; it is treated as missing.
pub(super) fn parse_settings(text: &str) -> Option<RosterSettings> {
    let mut parts = text.split(' ');
    let mut number = || parts.next()?.parse::<u64>().ok();
    let settings = RosterSettings {
        version: Version(number()?),
        default_capacity: u32::try_from(number()?).ok()?,
        stale_after: Duration::from_micros(number()?),
        require_heartbeat: number()? != 0,
        snapshot: Duration::from_micros(number()?),
    };
    parts.next().is_none().then_some(settings)
}

pub(super) fn read_turn(reader: &mut Reader) -> Read<Turn> {
    let (whose, at) = (reader.text()?, reader.time()?);
    Ok(match whose.as_str() {
        "m" => Turn::Mine(at),
        "o" => Turn::Others(at),
        "d" => Turn::DoneUntil(at),
        other => return Err(Malformed(format!("the turn {other:?}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roster_settings_round_trip() {
        let settings = RosterSettings {
            default_capacity: 3,
            stale_after: Duration::from_millis(1_500),
            require_heartbeat: false,
            snapshot: Duration::ZERO,
            version: Version((1 << 53) - 1),
        };
        assert_eq!(parse_settings(&show_settings(&settings)), Some(settings));
        for text in ["", "1 2 3 1", "1 2 3 1 5 6", "1 2 x 1 5", "1 -2 3 1 5"] {
            assert_eq!(parse_settings(text), None, "{text:?}");
        }
    }

    #[test]
    fn foreign_end_record_is_an_error() {
        let good = read_offlined("a@1", "lapsed 5 - 6").unwrap();
        assert_eq!((good.at.micros(), good.heard_at), (5, None));
        for record in ["", "lapsed", "odd 5 - 6", "lapsed x - 6", "lapsed 5 y 6"] {
            assert!(read_offlined("a@1", record).is_err(), "{record:?}");
        }
    }
}
