//! The hot store of a ledger. Two hot stores with one ledger would take each other's providers offline, so the ledger
//! records its hot store and a process with another one does not use it.

use std::fmt;
use std::time::Duration;

use crate::time::StoreTime;

/// How often a process confirms the hot store in the ledger.
pub const CONFIRM_EVERY: Duration = Duration::from_secs(6);
/// After this time without a confirmation, a hot store at the recorded place may be adopted although its data is
/// another: no running process reaches the recorded data. Several confirmations, so that a slow one costs nothing.
pub const UNCONFIRMED: Duration = Duration::from_secs(20);

/// A hot store: its data and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotStore {
    /// Identifies the data. A store that lost its data has another one.
    pub id: String,
    /// The URL without secrets. Several stores may have the same one: `localhost` on two machines.
    pub place: String,
}

impl fmt::Display for HotStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (data {})", self.place, self.id)
    }
}

/// A process that uses a ledger names its hot store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotStoreClaim {
    /// The hot store of the process.
    pub own: HotStore,
    /// The id that this process was last admitted with. A process that saw the recorded data disappear at this place
    /// need not wait until others can no longer confirm it.
    pub was: Option<String>,
    /// An operator replaces the recorded hot store.
    pub replaces: bool,
}

/// The hot store that a ledger has recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedHotStore {
    /// The hot store.
    pub hot_store: HotStore,
    /// How long ago a process last confirmed it.
    pub confirmed_ago: Duration,
}

impl RecordedHotStore {
    /// Whether a claim replaces this record.
    #[must_use]
    pub fn yields_to(&self, claim: &HotStoreClaim) -> bool {
        let recorded = &self.hot_store;
        let lost = claim.was.as_ref() == Some(&recorded.id) || self.confirmed_ago >= UNCONFIRMED;
        claim.replaces || claim.own.id == recorded.id || (claim.own.place == recorded.place && lost)
    }
}

/// The answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HotStoreOutcome {
    /// The claimed hot store is that of the ledger.
    Admitted,
    /// The ledger has another one. Nothing changed.
    Refused(RecordedHotStore),
}

/// The record of a ledger in memory.
#[derive(Debug, Default)]
pub(super) struct HotStoreRecord(Option<(HotStore, StoreTime)>);

impl HotStoreRecord {
    pub(super) fn read(&self, now: StoreTime) -> Option<RecordedHotStore> {
        let (hot_store, confirmed_at) = self.0.clone()?;
        Some(RecordedHotStore {
            hot_store,
            confirmed_ago: now.since(confirmed_at),
        })
    }

    pub(super) fn claim(&mut self, claim: &HotStoreClaim, now: StoreTime) -> HotStoreOutcome {
        match self.read(now) {
            Some(recorded) if !recorded.yields_to(claim) => HotStoreOutcome::Refused(recorded),
            _ => {
                self.0 = Some((claim.own.clone(), now));
                HotStoreOutcome::Admitted
            }
        }
    }
}
