//! Refusals: no member is marked dead because a daemon rejected beats of its group or could not accept connections.
//!
//! *E* = max(deadline, resumed_at + ttl, refused_until + ttl). A store records a refusal only in a step that finds no
//! member past its end, so a refusal never revives: a member that is dead when a refusal begins stays dead. A refusal
//! never makes a group unsettled. It is bounded, so that a flood cannot keep a dead tenure alive: `refused_until` is at
//! most one max ttl after the refusal began, and the next refusal counts only when every tenure that this one extended
//! has ended or was renewed.

use std::time::Duration;

use crate::time::StoreTime;

/// The last time that beats of a group were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refusal {
    /// The start; zero for never.
    pub began: StoreTime,
    /// The end, as far as it counts.
    pub until: StoreTime,
}

impl Refusal {
    /// The refusal after beats were refused at `now`.
    #[must_use]
    pub fn noted(self, now: StoreTime, max_ttl: Duration) -> Self {
        // A later time than now precedes a step back of the clock. That is a gap, which restarts every ttl anyway.
        if self.until > now || now > self.until + max_ttl {
            return Self { began: now, until: now };
        }
        let until = now.min(self.began + max_ttl);
        Self { until, ..self }
    }

    /// The time at which every ttl last restarted: the last resume of the store or the last counted refusal.
    #[must_use]
    pub fn or_resumed(self, resumed_at: StoreTime, now: StoreTime) -> StoreTime {
        if self.until > now {
            resumed_at
        } else {
            resumed_at.max(self.until)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settling::end_of;

    const MAX_TTL: Duration = Duration::from_secs(120);

    const fn at(seconds: u64) -> StoreTime {
        StoreTime::from_micros(seconds * 1_000_000)
    }

    /// The end of a tenure whose last beat was at 1,000 s.
    fn end(refusal: Refusal, now: StoreTime) -> StoreTime {
        let ttl = Duration::from_secs(30);
        end_of(at(1_030), ttl, refusal.or_resumed(at(900), now), now)
    }

    #[test]
    fn refusal_restarts_every_ttl() {
        let none = Refusal::default();
        assert_eq!(end(none, at(1_010)), at(1_030));
        let refused = none.noted(at(1_010), MAX_TTL);
        assert_eq!(end(refused, at(1_010)), at(1_040));
        assert_eq!(end(refused.noted(at(1_020), MAX_TTL), at(1_020)), at(1_050));
    }

    #[test]
    fn long_refusal_counts_for_one_max_ttl() {
        let mut refused = Refusal::default();
        for second in 1_010..=1_250 {
            refused = refused.noted(at(second), MAX_TTL);
        }
        assert_eq!((refused.began, refused.until), (at(1_010), at(1_130)));
        assert_eq!(end(refused, at(1_150)), at(1_160));
    }

    #[test]
    fn next_refusal_counts_after_one_max_ttl() {
        let refused = Refusal::default().noted(at(1_010), MAX_TTL);
        let (early, late) = (refused.noted(at(1_130), MAX_TTL), refused.noted(at(1_131), MAX_TTL));
        assert_eq!((early.began, early.until), (at(1_010), at(1_130)));
        assert_eq!((late.began, late.until), (at(1_131), at(1_131)));
        let over = early.noted(at(1_249), MAX_TTL);
        assert_eq!(over, early, "however long it lasts");
    }

    #[test]
    fn refusal_before_a_clock_step_back_does_not_count() {
        let refused = Refusal::default().noted(at(1_010), MAX_TTL);
        assert_eq!(refused.or_resumed(at(500), at(600)), at(500));
        assert_eq!(
            refused.noted(at(600), MAX_TTL),
            Refusal {
                began: at(600),
                until: at(600)
            }
        );
    }
}
