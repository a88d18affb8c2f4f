//! Records what calls did to the model, for the proof (`sim`): what was applied, in which order, and when.

use std::cell::RefCell;

use crate::pulse::KeptPulse;
use crate::time::StoreTime;

/// Something that was done on the model of a group.
#[derive(Debug, Clone)]
pub(super) enum Noted {
    /// A step, with the number that it has if it changed something.
    Step { number: u64, changed: bool, now: StoreTime },
    /// A look.
    Look { now: StoreTime, pulse: KeptPulse },
    /// Beats or heartbeats that were answered from memory, and those that were not.
    AtOnce { now: StoreTime, answered: Vec<bool> },
}

impl Noted {
    pub(super) fn at_once<T>(now: StoreTime, replies: &[Option<T>]) -> Self {
        let answered = replies.iter().map(Option::is_some).collect();
        Self::AtOnce { now, answered }
    }

    /// When it was.
    pub(super) fn now(&self) -> StoreTime {
        let (Self::Step { now, .. } | Self::Look { now, .. } | Self::AtOnce { now, .. }) = self;
        *now
    }
}

thread_local! {
    static NOTED: RefCell<Vec<Noted>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn note(noted: Noted) {
    NOTED.with_borrow_mut(|all| all.push(noted));
}

/// What was noted on this thread since the last call.
pub(super) fn take() -> Vec<Noted> {
    NOTED.take()
}
