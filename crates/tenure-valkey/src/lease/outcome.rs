//! The results of acquiring and releasing leases, as returned by the scripts.

use tenure_core::error::Error;
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::{AcquireOutcome, Holders, ReleaseOutcome};
use tenure_core::membership::EndReason;
use tenure_core::settling::GapCause;
use tenure_core::time::StoreTime;

use super::row::{read_place, read_token, read_wait};
use crate::registry::parse_refusal;
use crate::reply::{Malformed, Read, Reader, parse};

/// Why nothing was acquired.
pub(super) enum AcquireRefusal {
    Ended(EndReason),
    Target,
}

impl AcquireRefusal {
    pub(super) fn into_error(self, tenure: &TenureId, leases: &[LeaseName]) -> Error {
        match (self, leases.first()) {
            (Self::Ended(reason), _) => Error::ended(tenure, reason),
            (Self::Target, Some(lease)) => Error::invalid(format!(
                "a wait for {lease}, which is a target of a fleet; acquire it without a wait"
            )),
            (Self::Target, None) => Error::invalid("a wait for a target of a fleet"),
        }
    }
}

pub(super) fn read_acquire_refusal(reader: &mut Reader) -> Read<Option<AcquireRefusal>> {
    match reader.text()?.as_str() {
        "target" => Ok(Some(AcquireRefusal::Target)),
        text => Ok(parse_refusal(text)?.map(AcquireRefusal::Ended)),
    }
}

/// Parses the result of `acquire.lua` for one lease.
pub(super) fn read_acquired(text: &str) -> Read<AcquireOutcome> {
    let wrong = || Malformed("not an acquire outcome".to_owned());
    let kind = text.get(..1).ok_or_else(wrong)?;
    let words: Vec<&str> = text[1..].split(' ').collect();
    Ok(match (kind, &words[..]) {
        ("g", [token, place, generation, from @ ..]) => AcquireOutcome::Granted {
            token: read_token(token)?,
            place: read_place(place)?,
            generation: read_token(generation)?,
            from: from.first().map(|from| parse("a tenure", from)).transpose()?,
        },
        ("k", [token, place, generation]) => AcquireOutcome::Kept {
            token: read_token(token)?,
            place: read_place(place)?,
            generation: read_token(generation)?,
        },
        ("h", [wait, by]) => AcquireOutcome::Held {
            by: parse("a tenure", by)?,
            free_in: read_wait(wait)?,
        },
        ("r", [wait, to]) => AcquireOutcome::Reserved {
            to: MemberId::new(*to).map_err(|_| wrong())?,
            free_in: read_wait(wait)?,
        },
        ("u", [wait, cause]) => AcquireOutcome::Unsettled {
            retry_in: read_wait(wait)?,
            cause: GapCause::parse(cause).ok_or_else(wrong)?,
        },
        ("w", [ahead, until]) => AcquireOutcome::Waiting {
            ahead: parse("a number of waiters", ahead)?,
            until: StoreTime::from_micros(parse("a time", until)?),
        },
        ("d", [holders]) => AcquireOutcome::HoldersDiffer {
            holders: Holders::new(parse("a number of holders", holders)?).map_err(|_| wrong())?,
        },
        ("f", [waiting]) => AcquireOutcome::QueueFull {
            waiting: parse("a number of waiters", waiting)?,
        },
        _ => return Err(wrong()),
    })
}

/// Parses the result of `release_leases.lua` for one lease.
pub(super) fn read_released(text: &str) -> Read<ReleaseOutcome> {
    match (text.get(..1), text.get(1..)) {
        (Some("f"), Some("")) => Ok(ReleaseOutcome::Released),
        (Some("r"), Some("")) => Ok(ReleaseOutcome::Reserved),
        (Some("n"), Some(by)) => Ok(ReleaseOutcome::NotHolder {
            by: parse("a tenure", by)?,
        }),
        _ => Err(Malformed("not a release outcome".to_owned())),
    }
}
