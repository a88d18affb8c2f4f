//! The clock of the store's machine. It drifts, falls back and jumps, and only the store reads it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::{Clock, Mono, StoreTime};
use tenure_core::clock::Sleep;

use crate::node_clock::EPOCH_MICROS;
use crate::time::{Drift, WorldClock};

/// The store's clock.
///
/// The reference store derives its time from a local clock (wall time at the start plus trust time since), which cannot
/// fall back. This one can: it returns zero while a store is created ([`StoreMachineClock::make`]), and its own time as
/// trust time afterwards, so that the store's time equals this clock.
#[derive(Debug)]
pub struct StoreMachineClock {
    world: WorldClock,
    drift: Drift,
    state: Mutex<Offsets>,
}

#[derive(Debug, Default)]
struct Offsets {
    making: bool,
    /// The sum of all steps, in microseconds.
    stepped: i64,
    /// The sum of the small forward jumps.
    jumped: u64,
    /// Returned instead of the current time while set, for broken rules.
    pretend: Option<StoreTime>,
}

impl StoreMachineClock {
    /// Creates a clock with this drift.
    #[must_use]
    pub fn new(world: &WorldClock, drift: Drift) -> Arc<Self> {
        Arc::new(Self {
            world: world.clone(),
            drift,
            state: Mutex::default(),
        })
    }

    /// Creates a store that reads this clock.
    pub fn make<T>(&self, make: impl FnOnce() -> T) -> T {
        self.state().making = true;
        let made = make();
        self.state().making = false;
        made
    }

    /// The current time.
    #[must_use]
    pub fn time(&self) -> StoreTime {
        let state = self.state();
        if let Some(pretended) = state.pretend {
            return pretended;
        }
        let since = EPOCH_MICROS + self.drift.local(self.world.now().0) / 1_000;
        StoreTime::from_micros(since.saturating_add_signed(state.stepped))
    }

    /// Steps the clock, in microseconds.
    pub fn step(&self, by: i64) {
        let mut state = self.state();
        state.stepped = state.stepped.saturating_add(by);
    }

    /// Jumps forward by less than the store can detect.
    pub fn jump(&self, by: Duration) {
        let by = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.step(i64::try_from(by).unwrap_or(i64::MAX));
        self.state().jumped += by;
    }

    /// The sum of these jumps.
    #[must_use]
    pub fn jumped(&self) -> Duration {
        Duration::from_micros(self.state().jumped)
    }

    /// Returns a fixed time until called with `None`.
    pub fn pretend(&self, time: Option<StoreTime>) {
        self.state().pretend = time;
    }

    fn state(&self) -> MutexGuard<'_, Offsets> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for StoreMachineClock {
    fn mono(&self) -> Mono {
        if self.state().making {
            return Mono::default();
        }
        Mono::from_origin(Duration::from_micros(self.time().micros()))
    }

    fn wall_micros(&self) -> u64 {
        if self.state().making { 0 } else { self.time().micros() }
    }

    fn sleep(&self, _: Duration) -> Sleep {
        // The simulation waits on behalf of the store, so the store never sleeps.
        Box::pin(std::future::pending())
    }

    fn entropy(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::At;
    use futures_util::FutureExt;
    use tenure::{Store, StoreOptions};
    use tenure_core::memory::MemoryStore;

    #[test]
    fn the_reference_store_follows_the_clock_both_ways() {
        let world = WorldClock::default();
        let clock = StoreMachineClock::new(&world, Drift(0));
        let store = clock.make(|| MemoryStore::new(StoreOptions::default(), Arc::clone(&clock) as Arc<dyn Clock>));
        let time = || store.now().now_or_never().unwrap().unwrap().micros();
        assert_eq!(time(), EPOCH_MICROS);
        world.set(At(5_000_000_000));
        clock.step(-2_000_000);
        assert_eq!(time(), EPOCH_MICROS + 3_000_000);
        clock.jump(Duration::from_millis(500));
        assert_eq!(time(), EPOCH_MICROS + 3_500_000);
        assert_eq!(clock.jumped(), Duration::from_millis(500));
    }
}
