//! The pulse of a store that one process owns: a field beside its groups.
//!
//! It is not stored. A start is a pulse with a new id: every ttl restarts with the first beat that the daemon can take,
//! and no grant is withheld, because a whole file has forgotten none. Until that first beat no member is ended.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::pulse::KeptPulse;
use crate::time::StoreTime;

/// The pulse; without one before the first beat since the start.
#[derive(Debug, Default)]
pub(super) struct EnginePulse(Mutex<KeptPulse>);

impl EnginePulse {
    /// The pulse for a step or a read. The clock is read after this, so that the pulse is not in the future.
    pub(super) fn read(&self, clock: impl FnOnce() -> StoreTime) -> (KeptPulse, StoreTime) {
        let kept = self.lock();
        let now = clock();
        match kept.pulse {
            Some(_) => (*kept, now),
            None => (KeptPulse::begun(now), now),
        }
    }

    /// The pulse as it is kept, without one before the first beat.
    pub(super) fn kept(&self) -> KeptPulse {
        *self.lock()
    }

    /// One beat, which names this many groups. Returns its time. The clock of an engine never falls.
    pub(super) fn beat(&self, clock: impl FnOnce() -> StoreTime, failed: usize) -> StoreTime {
        let mut kept = self.lock();
        let now = clock();
        kept.beat(failed, now);
        now
    }

    fn lock(&self) -> MutexGuard<'_, KeptPulse> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
