//! Where the store's clock is, as far as a client can tell: from the last answer and its own clock.

use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::time::StoreTime;

/// Older than this, an anchor is renewed before it is relied upon: a store's clock may have been set in the meantime.
pub(super) const FRESH: Duration = Duration::from_secs(60);

/// A store time, and when it arrived here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) store_time: StoreTime,
    pub(super) arrived: Mono,
}

impl Anchor {
    /// The store time that corresponds to a local instant, or an earlier one: the answer was under way for a while, and
    /// the store's clock went on meanwhile. So a not-after made from it is never too generous.
    pub(super) fn at(&self, local: Mono) -> StoreTime {
        self.store_time + local.since(self.arrived)
    }

    /// Whether it can be relied upon.
    pub(super) fn is_fresh(&self, now: Mono) -> bool {
        now.since(self.arrived) <= FRESH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_not_after_lies_as_far_after_the_answer_as_the_give_up() {
        let anchor = Anchor {
            store_time: StoreTime::from_micros(5_000_000),
            arrived: Mono::from_origin(Duration::from_secs(10)),
        };
        let give_up = Mono::from_origin(Duration::from_millis(12_500));
        assert_eq!(anchor.at(give_up), StoreTime::from_micros(7_500_000));
        assert!(anchor.is_fresh(give_up));
        assert!(!anchor.is_fresh(Mono::from_origin(Duration::from_secs(71))));
    }
}
