//! The store's clock: it makes store time out of local time, and never goes back.
//!
//! It starts at the wall clock, but not below the high-water mark that the file keeps, and from then on runs with the
//! trust time of [`Clock::mono`]. That one counts what the machine was suspended and follows a wall clock that is
//! stepped forward, but never falls. So a pause of the process, a suspended machine and a step forward all show as
//! silence between two ticks, which is what the gap rule looks for; a wall clock stepped back shows nowhere while the
//! process runs, and after a restart store time goes on from the high-water mark, ahead of the wall until that has
//! caught up (`doctor` tells the offset).

use std::sync::Arc;

use tenure_core::clock::Mono;
use tenure_core::{Clock, StoreTime};

/// Store time of one open file.
#[derive(Debug)]
pub(crate) struct StoreClock {
    clock: Arc<dyn Clock>,
    base: StoreTime,
    origin: Mono,
}

impl StoreClock {
    /// A clock that starts now, but not below `high_water`.
    pub(crate) fn new(clock: Arc<dyn Clock>, high_water: StoreTime) -> Self {
        let (wall, origin) = (StoreTime::from_micros(clock.wall_micros()), clock.mono());
        Self {
            clock,
            base: wall.max(high_water),
            origin,
        }
    }

    /// Store time now. Never below an earlier answer.
    pub(crate) fn now(&self) -> StoreTime {
        self.base + self.clock.mono().since(self.origin)
    }

    /// The local clock underneath.
    pub(crate) fn local(&self) -> &dyn Clock {
        &*self.clock
    }
}
