//! The handle of one roster.

use std::fmt;
use std::sync::Arc;

use tenure_core::error::Result;
use tenure_core::id::{EngagementId, RosterName};
use tenure_core::ledger::{RosterSettings, SettingsPatch};

use super::answer::{Sourced, Written};
use super::one::One;
use super::service::Inner;

/// One roster, as this process serves it. Cheap to clone.
///
/// Every method that writes commits in the ledger first and fails with `Unavailable` when the ledger is out of reach
/// (its outcome tells whether something may have changed); that the hot store is, never fails a write. Every method that
/// reads fails with `Unavailable` when neither the mirror is to be believed nor the ledger answers in time. These are not
/// said again below.
#[derive(Clone)]
pub struct Roster {
    pub(super) inner: Arc<Inner>,
    pub(super) one: Arc<One>,
}

impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Roster({})", self.one.roster())
    }
}

impl Roster {
    /// Which.
    #[must_use]
    pub fn name(&self) -> &RosterName {
        self.one.roster()
    }

    /// A name for an engagement that has none, unlike any other.
    ///
    /// # Errors
    /// `Internal`, never seen.
    pub fn name_engagement(&self) -> Result<EngagementId> {
        let chance = || self.inner.clock().entropy();
        EngagementId::new(format!("e-{:016x}{:016x}", chance(), chance()))
    }

    /// The settings that this process obeys; at most a second old. O(1), no I/O once they are known.
    ///
    /// # Errors
    /// None of its own.
    pub async fn settings(&self) -> Result<Sourced<RosterSettings>> {
        self.soon()
    }

    /// Changes the settings, for every instance within a second. O(1), and O(online providers) in the background when
    /// their time without a heartbeat changes.
    ///
    /// # Errors
    /// `Invalid` for what breaks a limit: nothing changed.
    pub async fn set_settings(&self, patch: &SettingsPatch) -> Result<Written<RosterSettings>> {
        let _ = patch;
        self.soon()
    }

    pub(super) fn soon<T>(&self) -> Result<T> {
        Err(tenure_core::error::Error::new(
            tenure_core::error::ErrorKind::Unsupported,
            "this is not built yet",
        ))
    }
}
