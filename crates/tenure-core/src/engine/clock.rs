//! Store time of a store that one process owns: local time with an offset, and it never falls.
//!
//! It starts at the wall clock, but not below a high-water mark, and then runs with the trust time of [`Clock::mono`].
//! That one counts what the machine was suspended and follows a wall clock that is stepped forward, but never falls. So a
//! pause of the process, a suspended machine and a step forward all show as silence between two ticks. A wall clock stepped
//! back shows nowhere while the process runs; after a restart store time continues from the high-water mark, ahead of the
//! wall until that has caught up.

use std::sync::Arc;

use crate::clock::{Clock, Mono};
use crate::time::StoreTime;

/// Store time made of local time.
#[derive(Debug)]
pub struct StoreClock {
    clock: Arc<dyn Clock>,
    base: StoreTime,
    origin: Mono,
}

impl StoreClock {
    /// A clock that starts now, but not below `high_water`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, high_water: StoreTime) -> Self {
        let (wall, origin) = (StoreTime::from_micros(clock.wall_micros()), clock.mono());
        Self {
            clock,
            base: wall.max(high_water),
            origin,
        }
    }

    /// Store time now. Never below an earlier answer.
    #[must_use]
    pub fn now(&self) -> StoreTime {
        self.base + self.clock.mono().since(self.origin)
    }

    /// The local clock underneath.
    #[must_use]
    pub fn local(&self) -> &dyn Clock {
        &*self.clock
    }
}
