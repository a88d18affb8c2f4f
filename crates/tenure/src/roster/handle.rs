//! The handle of one roster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::within;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{EngagementId, RosterName};
use tenure_core::ledger::{Provider, RosterSettings, SettingsPatch, Version};
use tenure_core::roster::Entry;

use super::answer::{Sourced, Written};
use super::one::One;
use super::service::Inner;
use crate::meters;

/// How long the answer to a write of many rows waits for the mirror.
const SPREAD: Duration = Duration::from_secs(1);

/// One roster, as this process serves it. Cheap to clone.
///
/// Every method that writes commits in the ledger first and fails with `Unavailable` when the ledger is out of reach
/// (its outcome tells whether something may have changed); that the hot store is, never fails a write. Every method that
/// reads fails with `Unavailable` when neither the mirror is to be believed nor the ledger answers in time, and with
/// `NotFound` for a roster that does not exist ([`Roster::exists`]). These are not said again below.
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

    /// Refuses a roster that the ledger does not have: one begins with its first provider, setting or engagement. A process
    /// that has not heard of a roster asks the ledger; while that does not answer, none is refused. O(1), O(rosters) for one
    /// that it has not heard of.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn exists(&self) -> Result<()> {
        if self.one.is_listed() {
            return Ok(());
        }
        match self.inner.rosters_now().await {
            Ok(names) if !names.contains(self.name()) => Err(Error::new(
                ErrorKind::NotFound,
                format!("there is no roster {:?}", self.name().as_str()),
            )),
            Ok(_) => {
                self.one.set_listed();
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    /// The settings that this process obeys; at most a second old. From the mirror also stands for what is known without
    /// asking. O(1), no I/O once they are known.
    ///
    /// # Errors
    /// None of its own.
    pub async fn settings(&self) -> Result<Sourced<RosterSettings>> {
        self.touch();
        self.exists().await?;
        match self.one.settings() {
            Some(settings) => Ok(Sourced::mirror(settings)),
            None => {
                let settings = self.inner.settings_in_ledger(&self.one).await?;
                self.one.obey(settings);
                Ok(Sourced::ledger(settings))
            }
        }
    }

    /// Changes the settings, for every instance within a second. A new default capacity counts for the next reservation;
    /// the answer waits up to a second for the mirror to have it too. O(1); O(providers without a capacity of their own)
    /// when that changes, and O(online providers) in the background when their time without a heartbeat does.
    ///
    /// # Errors
    /// `Invalid` for what breaks a limit: nothing changed.
    pub async fn set_settings(&self, patch: &SettingsPatch) -> Result<Written<RosterSettings>> {
        self.touch();
        let before = self.inner.settings_of(&self.one).await;
        let ledger = self.inner.ledger();
        let settings = ledger.set_settings(self.name(), patch).await?;
        self.one.adopt(settings);
        // What changes nothing makes no roster.
        if settings.version > Version::NONE {
            self.one.line().set_known(true);
        }
        let mut mirrored = self.inner.mirror_settings(&self.one, settings).await;
        let changed = settings.version != before.version;
        if mirrored && changed && patch.default_capacity.is_some() {
            mirrored = self.spread_outbox().await;
        }
        self.inner.wake();
        self.answered(mirrored);
        Ok(Written {
            value: settings,
            changed,
            mirrored,
        })
    }

    /// Gives the mirror what a write has left in the outbox; answers whether it has all of it.
    async fn spread_outbox(&self) -> bool {
        let drained = within(self.inner.clock(), SPREAD, self.inner.drain_outbox(&self.one)).await;
        match drained {
            Some(Ok((_, empty))) => empty,
            Some(Err(error)) => {
                tracing::debug!(roster = %self.name(), error = error.chain(), "a write did not reach the mirror");
                false
            }
            None => false,
        }
    }

    /// Gives the mirror what a write has left in the ledger; answers whether it has it.
    pub(super) async fn spread(&self, rows: impl IntoIterator<Item = Provider>) -> bool {
        let entries = rows.into_iter().map(Entry::Row).collect();
        self.spread_entries(entries).await
    }

    pub(super) async fn spread_entries(&self, entries: Vec<Entry>) -> bool {
        let mirrored = self.inner.mirror_now(&self.one, entries).await;
        self.answered(mirrored);
        mirrored
    }

    /// A write is about to be answered: reads of this process see it from now on.
    fn answered(&self, mirrored: bool) {
        self.one.wrote(self.inner.guard().mark());
        meters::roster_write(self.one.line().label(), mirrored);
    }

    /// Somebody uses this roster.
    pub(super) fn touch(&self) {
        self.one.used(self.inner.clock().mono());
    }
}
