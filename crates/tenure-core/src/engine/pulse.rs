//! The pulse of a store that one process owns: a field beside its groups.
//!
//! It is not stored. A start is a pulse with a new id: every ttl restarts with the first beat that the daemon can take,
//! and no grant is withheld, because a whole file has forgotten none. Until that first beat nobody is ended.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::pulse::KeptPulse;
use crate::settling::Pulse;
use crate::time::StoreTime;

/// The pulse, and whether it was beaten since the start.
#[derive(Debug)]
pub(super) struct EnginePulse(Mutex<State>);

#[derive(Debug)]
struct State {
    kept: KeptPulse,
    id: u64,
}

impl EnginePulse {
    pub(super) fn new(now: StoreTime) -> Self {
        Self(Mutex::new(State {
            kept: KeptPulse::default(),
            id: now.micros(),
        }))
    }

    /// The pulse for a step or a read. The clock is read after this, so that the pulse is not in the future.
    pub(super) fn read(&self, clock: impl FnOnce() -> StoreTime) -> (KeptPulse, StoreTime) {
        let state = self.lock();
        let now = clock();
        let kept = match state.kept.pulse {
            Some(_) => state.kept,
            None => begun(state.id, now),
        };
        (kept, now)
    }

    /// One beat. `has_hole`: too many groups had failed beats to name them.
    pub(super) fn beat(&self, clock: impl FnOnce() -> StoreTime, has_hole: bool) -> StoreTime {
        let mut state = self.lock();
        let now = clock();
        let kept = match state.kept.pulse {
            Some(pulse) => KeptPulse {
                pulse: Some(Pulse::beaten(Some(pulse), now)),
                ..state.kept
            },
            None => begun(state.id, now),
        };
        state.kept = kept;
        if has_hole && let Some(pulse) = &mut state.kept.pulse {
            (pulse.since, pulse.lasted) = ([now; 3], [Duration::ZERO; 3]);
        }
        now
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A start that is under way, or was just now.
fn begun(id: u64, now: StoreTime) -> KeptPulse {
    let pulse = Pulse {
        id,
        tick: now,
        since: [now; 3],
        lasted: [Duration::ZERO; 3],
    };
    KeptPulse {
        pulse: Some(pulse),
        whole_at: now,
    }
}
