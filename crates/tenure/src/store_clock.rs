//! What we know of the store's clock, for the not-after times of our calls.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tenure_core::clock::{Clock, Mono};
use tenure_core::store::Call;
use tenure_core::time::StoreTime;

/// The store's time of its last reply, and when that reply arrived here. Not a clock to decide anything by: it only
/// bounds until when a call that we gave up may still take effect.
#[derive(Debug, Default)]
pub(crate) struct StoreClock {
    seen: Mutex<Option<(StoreTime, Mono)>>,
}

impl StoreClock {
    /// A reply with this store time arrived now.
    pub(crate) fn observe(&self, clock: &dyn Clock, as_of: StoreTime) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some((as_of, clock.mono()));
    }

    /// What we knew is worthless: the store's clock stepped.
    pub(crate) fn forget(&self) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The limits of a call that its caller gives up after `patience`. Before the first reply it has none of ours; a store
    /// that talks over a network adds its own.
    pub(crate) fn call(&self, clock: &dyn Clock, patience: Duration) -> Call {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        Call {
            not_after: seen.map(|(as_of, at)| as_of + (clock.mono() + patience).since(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{START, secs};
    use tenure_core::clock::ManualClock;

    #[test]
    fn a_call_may_take_effect_until_its_caller_gives_up_and_no_longer() {
        let (clock, seen) = (ManualClock::new(START, 1), StoreClock::default());
        assert_eq!(seen.call(&clock, secs(1)), Call::default());
        seen.observe(&clock, StoreTime::from_micros(5_000_000));
        clock.advance(secs(10));
        assert_eq!(
            seen.call(&clock, secs(2)).not_after,
            Some(StoreTime::from_micros(17_000_000))
        );
        seen.forget();
        assert_eq!(seen.call(&clock, secs(2)), Call::default());
    }
}
