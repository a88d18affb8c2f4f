//! What a holder may believe about itself without asking anyone: held, uncertain or lost.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Mono;
use crate::timing::Timing;

/// A three-valued answer. Work goes on only while it is `Held`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A beat was confirmed recently enough: nobody else can have taken over.
    Held,
    /// Not confirmed in time, or a gap was noticed: pause, and go on only after a confirmation.
    Uncertain,
    /// Ended by an answer of the store, or nothing confirmed for a whole ttl.
    Lost,
}

/// The local deadline of one tenure, counted from when the last confirmed beat was **sent**, so that a slow reply can
/// never stretch it.
#[derive(Debug, Clone, Copy)]
pub struct Trust {
    confirmed_sent_at: Mono,
    timing: Timing,
    doubted: bool,
    ended: bool,
}

impl Trust {
    /// Trust that begins with a confirmed request sent at `sent_at`.
    #[must_use]
    pub fn begin(sent_at: Mono, timing: Timing) -> Self {
        Self {
            confirmed_sent_at: sent_at,
            timing,
            doubted: false,
            ended: false,
        }
    }

    /// A beat sent at `sent_at` was confirmed. An ended tenure stays ended.
    pub fn confirm(&mut self, sent_at: Mono) {
        self.confirmed_sent_at = self.confirmed_sent_at.max(sent_at);
        self.doubted = false;
    }

    /// Something happened (a gap, a suspend, lost data) that makes the last confirmation worthless until the next.
    pub fn doubt(&mut self) {
        self.doubted = true;
    }

    /// The store said that the tenure ended.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Until when the verdict stays `Held` if nothing more is heard.
    #[must_use]
    pub fn valid_until(&self) -> Mono {
        self.confirmed_sent_at + self.timing.ttl.saturating_sub(self.timing.margin)
    }

    /// When it turns `Lost` if nothing more is heard.
    #[must_use]
    pub fn lost_at(&self) -> Mono {
        self.confirmed_sent_at + self.timing.ttl
    }

    /// How long until the verdict next changes by itself.
    #[must_use]
    pub fn changes_in(&self, now: Mono) -> Duration {
        let held = self.valid_until().since(now);
        if held.is_zero() {
            self.lost_at().since(now)
        } else {
            held
        }
    }

    /// The verdict now.
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
    fn it_runs_from_the_sending_of_the_last_confirmed_beat() {
        let mut trust = Trust::begin(at(0), Timing::for_ttl(Duration::from_secs(12)));
        assert_eq!(trust.verdict(at(10)), Verdict::Held);
        assert_eq!(trust.verdict(at(11)), Verdict::Uncertain);
        assert_eq!(trust.verdict(at(12)), Verdict::Lost);
        trust.confirm(at(10));
        assert_eq!(trust.verdict(at(20)), Verdict::Held);
        // A late reply to an old request takes nothing back.
        trust.confirm(at(3));
        assert_eq!(trust.valid_until(), at(21));
    }

    #[test]
    fn doubt_lasts_until_the_next_confirmation_and_an_end_for_ever() {
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
