//! What this process knows of one roster.

use tenure_core::id::RosterName;

/// One roster. Shared by its handles, the loops and the sweeps.
#[derive(Debug)]
pub(crate) struct One {
    roster: RosterName,
}

impl One {
    pub(crate) fn new(roster: RosterName) -> Self {
        Self { roster }
    }

    /// Which.
    pub(crate) fn roster(&self) -> &RosterName {
        &self.roster
    }
}
