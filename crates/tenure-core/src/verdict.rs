//! The local verdict of a holder about its own tenure: held, uncertain or lost.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Mono;
use crate::timing::Timing;

/// The verdict. Work may continue only while it is `Held`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A beat was confirmed recently enough: no other tenure can have taken over.
    Held,
    /// No confirmation in time, or a gap: pause until the next confirmation.
    Uncertain,
    /// The store ended the tenure, or no beat was confirmed for a whole ttl.
    Lost,
}

/// The local deadline of a tenure. It counts from when the last confirmed beat was **sent**, so a slow reply cannot
/// extend it.
#[derive(Debug, Clone, Copy)]
pub struct Trust {
    confirmed_sent_at: Mono,
    timing: Timing,
    doubted: bool,
    ended: bool,
}

impl Trust {
    /// Trust from a confirmed request sent at `sent_at`.
    #[must_use]
    pub fn begin(sent_at: Mono, timing: Timing) -> Self {
        Self {
            confirmed_sent_at: sent_at,
            timing,
            doubted: false,
            ended: false,
        }
    }

    /// Records a confirmed beat sent at `sent_at`. An ended tenure stays ended.
    pub fn confirm(&mut self, sent_at: Mono) {
        self.confirmed_sent_at = self.confirmed_sent_at.max(sent_at);
        self.doubted = false;
    }

    /// Invalidates the last confirmation until the next one, after a gap, a suspend or data loss.
    pub fn doubt(&mut self) {
        self.doubted = true;
    }

    /// Records that the store ended the tenure.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// The end of `Held` without a further confirmation.
    #[must_use]
    pub fn valid_until(&self) -> Mono {
        self.confirmed_sent_at + self.timing.ttl.saturating_sub(self.timing.margin)
    }

    /// The start of `Lost` without a further confirmation.
    #[must_use]
    pub fn lost_at(&self) -> Mono {
        self.confirmed_sent_at + self.timing.ttl
    }

    /// The time until the next change of the verdict without a further confirmation.
    #[must_use]
    pub fn changes_in(&self, now: Mono) -> Duration {
        let held = self.valid_until().since(now);
        if held.is_zero() {
            self.lost_at().since(now)
        } else {
            held
        }
    }

    /// The verdict at `now`.
    #[must_use]
    pub fn verdict(&self, now: Mono) -> Verdict {
        if self.ended || now >= self.lost_at() {
            Verdict::Lost
        } else if self.doubted || now >= self.valid_until() {
            Verdict::Uncertain
        } else {
            Verdict::Held
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn trust_counts_from_the_send_time_of_the_last_confirmed_beat() {
        let mut trust = Trust::begin(at(0), Timing::for_ttl(Duration::from_secs(12)));
        assert_eq!(trust.verdict(at(10)), Verdict::Held);
        assert_eq!(trust.verdict(at(11)), Verdict::Uncertain);
        assert_eq!(trust.verdict(at(12)), Verdict::Lost);
        trust.confirm(at(10));
        assert_eq!(trust.verdict(at(20)), Verdict::Held);
        // A late reply to an earlier request does not shorten it.
        trust.confirm(at(3));
        assert_eq!(trust.valid_until(), at(21));
    }

    #[test]
    fn doubt_ends_with_a_confirmation_and_an_end_is_final() {
        let mut trust = Trust::begin(at(0), Timing::for_ttl(Duration::from_secs(12)));
        trust.doubt();
        assert_eq!(trust.verdict(at(1)), Verdict::Uncertain);
        trust.confirm(at(1));
        assert_eq!(trust.verdict(at(2)), Verdict::Held);
        trust.end();
        trust.confirm(at(2));
        assert_eq!(trust.verdict(at(2)), Verdict::Lost);
    }
}
