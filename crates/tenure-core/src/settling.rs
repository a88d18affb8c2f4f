//! Gaps: telling our outage from their death.
//!
//! Every mutating step of a store first compares its clock with the `tick` it wrote last. If the store did not serve
//! for longer than [`gap`], or its clock fell back, then nobody could have beaten in that time, and everyone gets one
//! full ttl from the moment it serves again (`resumed_at`). The stores of other languages of this rule (Lua, SQL) are
//! held to these functions by the conformance suite.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{StoreTime, micros};

/// The longest silence that is never a gap, however long the tenures are.
pub const MAX_GAP: Duration = Duration::from_secs(2);

/// How long a group may go without a mutating step before that counts as a gap: `min(2 s, 5/12 of the smallest ttl)`.
///
/// 5/12 is what remains of a ttl after the beat interval (1/3), the request timeout (1/6) and the margin (1/12): a
/// pause that goes unnoticed can cost nobody a beat.
#[must_use]
pub fn gap(smallest_ttl: Option<Duration>) -> Duration {
    // Whole microseconds, the resolution of store time: the decision is the same, and every store can say the number.
    smallest_ttl.map_or(MAX_GAP, |ttl| Duration::from_micros(micros(ttl * 5 / 12)).min(MAX_GAP))
}

/// Why a group is not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapCause {
    /// The store did not serve: it was stopped, paused, cut off, or nobody ticked.
    Silent,
    /// The store's clock fell back.
    ClockBack,
    /// The group's data is gone: the store was flushed, or restarted empty.
    DataLoss,
    /// The end of the data is gone: a beat named a term that the store never gave out (failover to a lagging replica).
    TailLoss,
    /// The store is new or was emptied. The beat of a member from before turns it into [`DataLoss`](Self::DataLoss).
    New,
}

impl GapCause {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Silent, Self::ClockBack, Self::DataLoss, Self::TailLoss, Self::New];

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::ClockBack => "clock_back",
            Self::DataLoss => "data_loss",
            Self::TailLoss => "tail_loss",
            Self::New => "new",
        }
    }

    /// From the name on the wire.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == name)
    }

    /// Why no lease is granted for this long, for people, and what they can do about it.
    #[must_use]
    pub fn why_no_lease(self, wait: Duration) -> String {
        let why = match self {
            Self::Silent => "the store was out of service",
            Self::ClockBack => "the clock of the store fell back",
            Self::DataLoss => "the store has lost its data, and with it who holds which lease",
            Self::TailLoss => "the store has lost its newest data",
            Self::New => "the store is new or was emptied",
        };
        let seconds = wait.as_millis().div_ceil(1000);
        let hint = match self {
            Self::New => "; if nothing was held in it before, run `tenure settle`",
            _ => "",
        };
        format!("{why}: leases are granted in {seconds} s{hint}")
    }

    /// Whether an operator's word that nothing was held ends a grace of this cause: one that is only new always, and any
    /// other when it is named, for then something was there that may have been held.
    #[must_use]
    pub fn is_ended_by(self, named: Option<Self>) -> bool {
        self == named.unwrap_or(Self::New)
    }
}

/// Compares the last tick with now.
#[must_use]
pub fn observe(tick: StoreTime, now: StoreTime, gap: Duration) -> Option<GapCause> {
    if now < tick {
        Some(GapCause::ClockBack)
    } else if now.since(tick) > gap {
        Some(GapCause::Silent)
    } else {
        None
    }
}

/// The end of a tenure, *E* = `max(deadline, resumed_at + ttl)`: it lapses when the store's clock reaches it.
///
/// A deadline further away than its own ttl was made by a clock that has since fallen back; it is read as
/// `resumed_at + ttl`. So no pass over all members is needed after a step back.
#[must_use]
pub fn end_of(deadline: StoreTime, ttl: Duration, resumed_at: StoreTime, now: StoreTime) -> StoreTime {
    let grace = resumed_at + ttl;
    if deadline > now + ttl {
        grace
    } else {
        deadline.max(grace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> StoreTime {
        StoreTime::from_micros(seconds * 1_000_000)
    }
    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_gap_costs_nobody_a_beat() {
        for ttl_ms in [1000, 1500, 4800, 30_000, 120_000] {
            let ttl = Duration::from_millis(ttl_ms);
            let timing = crate::timing::Timing::for_ttl(ttl);
            let spare = ttl - timing.interval - timing.request_timeout - timing.margin;
            assert!(
                gap(Some(ttl)) <= spare,
                "ttl {ttl:?}: gap {:?}, spare {spare:?}",
                gap(Some(ttl))
            );
        }
        assert_eq!(gap(None), s(2));
        assert_eq!(gap(Some(s(30))), s(2));
    }

    #[test]
    fn silence_and_a_clock_that_falls_back_are_gaps() {
        assert_eq!(observe(at(10), at(12), s(2)), None);
        assert_eq!(
            observe(at(10), at(12) + Duration::from_micros(1), s(2)),
            Some(GapCause::Silent)
        );
        assert_eq!(observe(at(10), at(9), s(2)), Some(GapCause::ClockBack));
    }

    #[test]
    fn only_what_is_new_is_settled_without_naming_its_cause() {
        for cause in GapCause::ALL {
            assert_eq!(GapCause::parse(cause.as_str()), Some(cause));
            assert_eq!(cause.is_ended_by(None), cause == GapCause::New);
            assert!(cause.is_ended_by(Some(cause)));
        }
        assert!(!GapCause::DataLoss.is_ended_by(Some(GapCause::New)));
    }

    #[test]
    fn everyone_gets_one_full_ttl_after_a_gap() {
        assert_eq!(end_of(at(40), s(30), at(0), at(20)), at(40));
        assert_eq!(end_of(at(40), s(30), at(100), at(100)), at(130));
        // The clock fell from about 970 back to 5: the old deadline of 1000 is not believed.
        assert_eq!(end_of(at(1000), s(30), at(5), at(5)), at(35));
    }
}
