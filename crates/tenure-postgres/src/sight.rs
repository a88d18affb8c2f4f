//! What the ledger's clock shows, as far as this process knows: so that a statement can carry the time after which it must
//! not take effect any more.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tenure_core::StoreTime;
use tenure_core::clock::Mono;

/// After this long a reading counts, even if it is behind the one before.
const RENEW: Duration = Duration::from_secs(10);
/// A reading that falls behind by more than this shows a clock that was set back, or another server.
const STEP: Duration = Duration::from_secs(1);

/// The best reading.
///
/// A reply was under way for an unknown time, so each reading is at most what the clock shows. The one that promises the
/// most is the best of them: it came the fastest.
#[derive(Debug, Default)]
pub(crate) struct Sight(Mutex<Option<(StoreTime, Mono)>>);

impl Sight {
    /// A reply that came just now told the ledger's time.
    pub(crate) fn told(&self, ledger: StoreTime, arrived: Mono) {
        let mut best = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_better = best.is_none_or(|(shown, at)| {
            let age = arrived.since(at);
            let expected = shown + age;
            ledger >= expected || age > RENEW || expected.since(ledger) > STEP
        });
        if is_better {
            *best = Some((ledger, arrived));
        }
    }

    /// What the ledger's clock shows, at the least, when ours shows this.
    pub(crate) fn at(&self, when: Mono) -> Option<StoreTime> {
        let best = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        best.map(|(shown, at)| shown + when.since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_reply_counts_until_the_clock_is_set() {
        let ms = Duration::from_millis;
        let (ledger, local) = (
            |n: u64| StoreTime::from_micros(5_000_000_000 + n * 1_000),
            |n: u64| Mono::from_origin(ms(n)),
        );
        let sight = Sight::default();
        assert_eq!(sight.at(local(0)), None);
        sight.told(ledger(0), local(10));
        assert_eq!(sight.at(local(30)), Some(ledger(20)));
        // This one was under way for longer.
        sight.told(ledger(100), local(400));
        assert_eq!(sight.at(local(400)), Some(ledger(390)));
        // This one for less.
        sight.told(ledger(500), local(502));
        assert_eq!(sight.at(local(502)), Some(ledger(500)));
        // Set forward, set back.
        sight.told(ledger(9_000), local(600));
        assert_eq!(sight.at(local(600)), Some(ledger(9_000)));
        sight.told(ledger(700), local(700));
        assert_eq!(sight.at(local(700)), Some(ledger(700)));
    }
}
