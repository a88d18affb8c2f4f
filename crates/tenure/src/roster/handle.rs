//! The handle of one roster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::within;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{EngagementId, RosterName};
use tenure_core::ledger::{Provider, RosterSettings, SettingsPatch, Version};
use tenure_core::roster::MirrorEntry;

use super::answer::{Sourced, Written};
use super::service::Inner;
use super::state::RosterState;
use crate::meters;

/// How long the answer to a write of many rows waits for the mirror.
const MIRROR_WAIT: Duration = Duration::from_secs(1);

/// One roster, as served by this process. Cheap to clone.
///
/// A write commits in the ledger first and fails with `Unavailable` when the ledger is unreachable (the error's outcome
/// says whether something may have changed). An unreachable hot store never fails a write. A read fails with
/// `Unavailable` when the mirror is not trusted and the ledger does not answer in time, and with `NotFound` for a
/// roster that does not exist ([`Roster::exists`]). The methods below do not repeat these errors.
#[derive(Clone)]
pub struct Roster {
    pub(super) inner: Arc<Inner>,
    pub(super) state: Arc<RosterState>,
}

impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Roster({})", self.state.roster())
    }
}

impl Roster {
    /// The roster's name.
    #[must_use]
    pub fn name(&self) -> &RosterName {
        self.state.roster()
    }

    /// A new random name for an engagement.
    ///
    /// # Errors
    /// `Internal`, never in practice.
    pub fn name_engagement(&self) -> Result<EngagementId> {
        let chance = || self.inner.clock().entropy();
        EngagementId::new(format!("e-{:016x}{:016x}", chance(), chance()))
    }

    /// Fails for a roster that the ledger does not have: a roster begins with its first provider, setting or
    /// engagement. A process that does not know the roster asks the ledger; while the ledger does not answer, no roster
    /// is rejected. O(1); O(rosters) for an unknown one.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn exists(&self) -> Result<()> {
        if self.state.is_listed() {
            return Ok(());
        }
        match self.inner.rosters_now().await {
            Ok(names) if !names.contains(self.name()) => Err(Error::new(
                ErrorKind::NotFound,
                format!("there is no roster {:?}", self.name().as_str()),
            )),
            Ok(_) => {
                self.state.set_listed();
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    /// The settings in effect; at most a second old. The source is `Mirror` also when they are known without a read.
    /// O(1), no I/O once they are known.
    ///
    /// # Errors
    /// None of its own.
    pub async fn settings(&self) -> Result<Sourced<RosterSettings>> {
        self.touch();
        self.exists().await?;
        match self.state.settings() {
            Some(settings) => Ok(Sourced::mirror(settings)),
            None => {
                let settings = self.inner.settings_in_ledger(&self.state).await?;
                self.state.apply_if_newer(settings);
                Ok(Sourced::ledger(settings))
            }
        }
    }

    /// Changes the settings, for every process within a second. A new default capacity applies to the next reservation,
    /// and the answer waits up to a second for the mirror to have it. O(1); O(providers without their own capacity)
    /// when the default capacity changes, and O(online providers) in the background when `stale_after` does.
    ///
    /// # Errors
    /// `Invalid` for an exceeded limit: nothing changed.
    pub async fn set_settings(&self, patch: &SettingsPatch) -> Result<Written<RosterSettings>> {
        self.touch();
        let before = self.inner.settings_of(&self.state).await;
        let ledger = self.inner.ledger();
        let settings = ledger.set_settings(self.name(), patch).await?;
        self.state.adopt(settings);
        // A patch without effect creates no roster.
        if settings.version > Version::NONE {
            self.state.mirror().set_known(true);
        }
        let mut mirrored = self.inner.mirror_settings(&self.state, settings).await;
        let changed = settings.version != before.version;
        if mirrored && changed && patch.default_capacity.is_some() {
            mirrored = self.mirror_outbox().await;
        }
        self.inner.wake();
        self.answered(mirrored);
        Ok(Written {
            value: settings,
            changed,
            mirrored,
        })
    }

    /// Copies the outbox to the mirror. Returns whether the outbox is empty.
    async fn mirror_outbox(&self) -> bool {
        let drained = within(self.inner.clock(), MIRROR_WAIT, self.inner.drain_outbox(&self.state)).await;
        match drained {
            Some(Ok((_, empty))) => empty,
            Some(Err(error)) => {
                tracing::debug!(roster = %self.name(), error = error.chain(), "a write did not reach the mirror");
                false
            }
            None => false,
        }
    }

    /// Copies written rows to the mirror. Returns whether it has them.
    pub(super) async fn mirror_rows(&self, rows: impl IntoIterator<Item = Provider>) -> bool {
        let entries = rows.into_iter().map(MirrorEntry::Row).collect();
        self.mirror_entries(entries).await
    }

    pub(super) async fn mirror_entries(&self, entries: Vec<MirrorEntry>) -> bool {
        let mirrored = self.inner.mirror_now(&self.state, entries).await;
        self.answered(mirrored);
        mirrored
    }

    /// Before a write is answered: later reads of this process must see it.
    fn answered(&self, mirrored: bool) {
        self.state.wrote(self.inner.guard().moment());
        meters::roster_write(self.state.mirror().label(), mirrored);
    }

    /// Notes that the roster is in use.
    pub(super) fn touch(&self) {
        self.state.used(self.inner.clock().mono());
    }
}
