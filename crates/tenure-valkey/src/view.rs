//! Evaluates stored members: the reading scripts return raw values, and the rule of `tenure-core` decides who is alive.

use std::fmt;
use std::time::Duration;

use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{MemberId, TenureId, Term};
use tenure_core::membership::{EndReason, Holdings, Labels, Member, Revision};
use tenure_core::refusal::Refusal;
use tenure_core::settling::end_of;
use tenure_core::time::StoreTime;

use crate::reply::{Read, Reader};

/// The group's state that decides who is alive, read in the same step as the members.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Liveness {
    now: StoreTime,
    resumed_at: StoreTime,
    recorded: StoreTime,
    refused_until: StoreTime,
}

impl Liveness {
    /// Reads when the store resumed, as seen and as recorded, and `refused_until`; all are nil when there is no group.
    pub(crate) fn read(reader: &mut Reader, now: StoreTime) -> Read<Self> {
        let mut fields = reader.array()?;
        let (resumed, recorded) = (fields.maybe_number()?, fields.maybe_number()?);
        let refused_until = StoreTime::from_micros(fields.maybe_number()?.unwrap_or(0));
        let at = |time: Option<u64>| time.map_or(now, StoreTime::from_micros);
        Ok(Self {
            now,
            resumed_at: at(resumed),
            recorded: at(recorded),
            refused_until,
        })
    }

    /// Whether there was a gap that no step has met yet.
    pub(crate) fn has_unmet_gap(&self) -> bool {
        self.resumed_at != self.recorded
    }

    /// The end of a tenure.
    pub(crate) fn end(&self, packed: &PackedTenure) -> StoreTime {
        let refusal = Refusal {
            began: StoreTime::ZERO,
            until: self.refused_until,
        };
        let given_at = refusal.or_resumed(self.resumed_at, self.now);
        end_of(packed.deadline, packed.ttl, given_at, self.now)
    }

    /// The store's time of this read.
    pub(crate) fn now(&self) -> StoreTime {
        self.now
    }

    /// When a granted span is over, by the same rule as the end of a tenure.
    pub(crate) fn expiry(&self, at: StoreTime, granted: Duration) -> StoreTime {
        end_of(at, granted, self.resumed_at, self.now)
    }

    /// Whether a tenure is alive, given its member's current one.
    pub(crate) fn is_alive(&self, tenure: &TenureId, current: Option<&PackedTenure>) -> bool {
        current.is_some_and(|packed| packed.term == tenure.term() && self.now < self.end(packed))
    }

    /// How long until another tenure can have what this one holds, given the member's current tenure and the record of
    /// its end. The process of a superseded or expelled tenure may still be working until its last deadline.
    pub(crate) fn free_in(&self, tenure: &TenureId, current: Option<&PackedTenure>, record: &str) -> Duration {
        if let Some(packed) = current.filter(|packed| packed.term == tenure.term()) {
            return self.end(packed).since(self.now);
        }
        let mut parts = record.split(' ');
        let reason = parts.next().and_then(EndReason::parse);
        let mut time = || {
            parts
                .next()
                .and_then(|part| part.parse().ok())
                .map(StoreTime::from_micros)
        };
        match (reason, time(), time()) {
            (Some(reason), Some(last), Some(at)) if reason.may_still_run() => {
                end_of(last, last.since(at), self.resumed_at, self.now).since(self.now)
            }
            _ => Duration::ZERO,
        }
    }

    /// A member as returned to readers.
    pub(crate) fn member(&self, row: MemberRow) -> Result<Member> {
        let packed = PackedTenure::read(&row.packed)?;
        let member = MemberId::new(&row.name).map_err(foreign)?;
        let labels = match &row.labels {
            Some(json) => serde_json::from_str(json).map_err(foreign)?,
            None => Labels::default(),
        };
        let end = self.end(&packed);
        let tenure = TenureId::new(member.clone(), packed.term);
        Ok(Member {
            joined_at: tenure.began_at(),
            tenure,
            member,
            alive: self.now < end,
            ttl: packed.ttl,
            expires_in: end.since(self.now),
            last_beat_at: packed.deadline.minus(packed.ttl),
            labels,
            holdings: row.holdings,
        })
    }
}

/// The smallest ttl as stored; `None` for 0 or nil.
pub(crate) fn shortest(min_ttl: Option<u64>) -> Option<Duration> {
    min_ttl.filter(|micros| *micros > 0).map(Duration::from_micros)
}

/// A member as returned by the reading scripts.
#[derive(Debug)]
pub(crate) struct MemberRow {
    pub(crate) name: String,
    pub(crate) packed: Vec<u8>,
    labels: Option<String>,
    pub(crate) holdings: Holdings,
}

impl MemberRow {
    /// Reads an array of members.
    pub(crate) fn read_all(reader: &mut Reader) -> Read<Vec<Self>> {
        let mut rows = reader.array()?;
        let mut found = Vec::with_capacity(rows.left());
        while rows.left() > 0 {
            let mut row = rows.array()?;
            let (name, packed) = (row.text()?, row.maybe_bytes()?.unwrap_or_default());
            found.push(Self {
                name,
                packed,
                labels: row.maybe_text()?,
                holdings: read_holdings(&mut row)?,
            });
        }
        Ok(found)
    }
}

/// How much a tenure holds: claims, leases, connections.
pub(crate) fn read_holdings(reader: &mut Reader) -> Read<Holdings> {
    Ok(Holdings {
        claims: reader.number()?,
        leases: reader.number()?,
        connections: reader.number()?,
    })
}

/// The packed value of a member: term, deadline, ttl and revision, four little-endian doubles.
///
/// Doubles are Lua's number type: packing them costs the script a third of formatting text, and integers below 2^53 are
/// exact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PackedTenure {
    pub(crate) term: Term,
    deadline: StoreTime,
    ttl: Duration,
    pub(crate) revision: Revision,
}

impl PackedTenure {
    /// Reads a packed value.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self> {
        let bad = || foreign("a member's value that is not four numbers");
        let doubles: &[u8; 32] = bytes.try_into().map_err(|_| bad())?;
        let at = |n: usize| {
            let mut double = [0; 8];
            double.copy_from_slice(&doubles[8 * n..8 * n + 8]);
            whole(f64::from_le_bytes(double)).ok_or_else(bad)
        };
        Ok(Self {
            term: Term::new(at(0)?).map_err(foreign)?,
            deadline: StoreTime::from_micros(at(1)?),
            ttl: Duration::from_micros(at(2)?),
            revision: Revision(at(3)?),
        })
    }
}

/// A number in the scripts' packed form.
#[expect(clippy::cast_precision_loss, reason = "terms and µs are below 2^53")]
pub(crate) fn double(number: u64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}

/// Reads a packed number; `None` unless it is an integer below 2^53.
pub(crate) fn whole(double: f64) -> Option<u64> {
    let fits = (0.0..9_007_199_254_740_992.0).contains(&double) && double.fract() == 0.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked just before"
    )]
    fits.then_some(double as u64)
}

/// The error for data under Tenure's keys that no script of Tenure wrote.
pub(crate) fn foreign(what: impl fmt::Display) -> Error {
    Error::new(
        ErrorKind::Internal,
        "the store holds data under Tenure's keys that Tenure did not write",
    )
    .because(what.to_string())
}

/// Sleeps on the clock; used only by the loop that polls for events.
pub(crate) async fn pause(clock: &dyn Clock, duration: Duration) {
    clock.sleep(duration).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(numbers: [f64; 4]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn numbers_near_2_pow_53_are_exact() {
        for term in [1, 1_763_676_800_000_001, Term::MAX] {
            let bytes = [double(term), double(term), double(1), double(0)].concat();
            let read = PackedTenure::read(&bytes).unwrap();
            assert_eq!((read.term.get(), read.deadline.micros()), (term, term));
        }
    }

    #[test]
    fn foreign_member_value_is_an_error() {
        for bytes in [
            vec![],
            vec![0; 31],
            packed([0.0, 1.0, 1.0, 0.0]),
            packed([f64::NAN, 1.0, 1.0, 0.0]),
            packed([1.5, 1.0, 1.0, 0.0]),
            packed([1.0, -1.0, 1.0, 0.0]),
            packed([1.0, 1.0, f64::INFINITY, 0.0]),
            packed([9_007_199_254_740_992.0, 1.0, 1.0, 0.0]),
        ] {
            assert_eq!(
                PackedTenure::read(&bytes).unwrap_err().kind(),
                ErrorKind::Internal,
                "{bytes:?}"
            );
        }
    }
}
