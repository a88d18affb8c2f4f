//! Gaps: distinguishing an outage of the store from the death of a member.
//!
//! Every mutating step of a store first compares its clock with its last `tick`. If the store did not serve for longer
//! than [`gap`], or its clock fell back, no member could beat in that time. So every ttl restarts when the store serves
//! again (`resumed_at`). The conformance suite holds the implementations in other languages (Lua, SQL) to these
//! functions.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{StoreTime, micros};

/// The longest silence that is never a gap, for any ttl.
pub const MAX_GAP: Duration = Duration::from_secs(2);

/// The longest time without a mutating step that is not a gap: `min(2 s, 5/12 of the smallest ttl)`.
///
/// 5/12 is the rest of a ttl after the beat interval (1/3), the request timeout (1/6) and the margin (1/12), so an
/// unnoticed pause costs no member a beat.
#[must_use]
pub fn gap(smallest_ttl: Option<Duration>) -> Duration {
    // Whole microseconds, the resolution of store time, so that every store computes the same value.
    smallest_ttl.map_or(MAX_GAP, |ttl| Duration::from_micros(micros(ttl * 5 / 12)).min(MAX_GAP))
}

/// The cause of an unsettled group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapCause {
    /// The store did not serve: it was stopped, paused or unreachable, or had no ticker.
    Silent,
    /// The store's clock fell back.
    ClockBack,
    /// The group's data is gone: the store was flushed or restarted empty.
    DataLoss,
    /// The tail of the data is gone: a beat had a term that the store never issued (failover to a lagging replica).
    TailLoss,
    /// The store is new or was emptied. A beat of an earlier member turns it into [`DataLoss`](Self::DataLoss).
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

    /// Parses the name on the wire.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == name)
    }

    /// The message that no lease is granted for this long, with the cause and what to do.
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

    /// Whether an operator's statement that nothing was held ends a grace with this cause: always for `New`, and for
    /// any other cause only if it is named, because leases may have been held.
    #[must_use]
    pub fn is_ended_by(self, named: Option<Self>) -> bool {
        self == named.unwrap_or(Self::New)
    }
}

/// Compares the last tick with the clock; `Some` for a gap.
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

/// The end time *E* of a tenure, `max(deadline, resumed_at + ttl)`: it lapses when the store's clock reaches it.
///
/// A deadline further away than its ttl predates a step back of the clock and is read as `resumed_at + ttl`. So a step
/// back needs no pass over all members.
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
    fn unnoticed_pause_costs_no_beat() {
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
    fn silence_and_a_clock_step_back_are_gaps() {
        assert_eq!(observe(at(10), at(12), s(2)), None);
        assert_eq!(
            observe(at(10), at(12) + Duration::from_micros(1), s(2)),
            Some(GapCause::Silent)
        );
        assert_eq!(observe(at(10), at(9), s(2)), Some(GapCause::ClockBack));
    }

    #[test]
    fn settle_without_a_cause_ends_only_new() {
        for cause in GapCause::ALL {
            assert_eq!(GapCause::parse(cause.as_str()), Some(cause));
            assert_eq!(cause.is_ended_by(None), cause == GapCause::New);
            assert!(cause.is_ended_by(Some(cause)));
        }
        assert!(!GapCause::DataLoss.is_ended_by(Some(GapCause::New)));
    }

    #[test]
    fn every_ttl_restarts_after_a_gap() {
        assert_eq!(end_of(at(40), s(30), at(0), at(20)), at(40));
        assert_eq!(end_of(at(40), s(30), at(100), at(100)), at(130));
        // The clock fell from about 970 to 5, so the old deadline of 1000 is ignored.
        assert_eq!(end_of(at(1000), s(30), at(5), at(5)), at(35));
    }
}
