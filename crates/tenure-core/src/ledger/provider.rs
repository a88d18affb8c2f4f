//! Providers as the ledger knows them, and what can be asked about many of them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::{ProviderId, TenureId};
use crate::membership::EndReason;
use crate::store::{PageRequest, bad_cursor};
use crate::time::StoreTime;

/// The largest capacity.
pub const MAX_CAPACITY: u32 = 100_000;
/// The longest display name, in bytes.
pub const MAX_DISPLAY_NAME: usize = 256;
/// The most providers of one batch: tenures that ended, heartbeats, rows that reached the mirror.
pub const MAX_BATCH: usize = 10_000;

/// Which of two states of a row is the newer one. Drawn from one sequence per ledger, so it rises over all rows, also
/// over one that was removed and made again. Below 2^53, so that it survives JSON and Lua.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Version(pub u64);

impl Version {
    /// Of what was never written.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A provider's row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Provider {
    /// Who.
    pub provider: ProviderId,
    /// For people.
    pub display_name: Option<String>,
    /// What the operator wants: a deactivated provider takes no work, and no heartbeat makes it active again.
    pub active: bool,
    /// The tenure it is online under; `None` while it is offline. It may be a placeholder of the ledger's own making, see
    /// [`Ledger::go_online`](super::Ledger::go_online).
    pub online: Option<TenureId>,
    /// How many engagements it can take: its own number, or the roster's default.
    pub capacity: u32,
    /// How many it has that are pending or active. Derived from the engagements in the step that changes one.
    pub occupancy: u32,
    /// When it came online last.
    pub last_online_at: Option<StoreTime>,
    /// When it went offline last: when its tenure ended, where the hot store told.
    pub last_offline_at: Option<StoreTime>,
    /// Its last heartbeat that the heartbeat mirror brought here.
    pub last_heartbeat_at: Option<StoreTime>,
    /// When it was deactivated last: what it was given before is void, also after it was activated again.
    pub revoked_before: Option<StoreTime>,
    /// Rises with every change of the row, but for heartbeats.
    pub version: Version,
}

impl Provider {
    /// Whether it is online and active and has room.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.online.is_some() && self.active && self.occupancy < self.capacity
    }

    /// Whether it came online or was heard of at or after `since`; always, without one.
    #[must_use]
    pub fn is_fresh(&self, since: Option<StoreTime>) -> bool {
        since.is_none_or(|since| self.last_heartbeat_at.max(self.last_online_at) >= Some(since))
    }
}

/// What is written down of a provider's capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Capacity {
    /// As it is; a new provider has the roster's default.
    #[default]
    Keep,
    /// The roster's [`default_capacity`](super::RosterSettings::default_capacity): it changes with that setting.
    Default,
    /// A number of its own, at most [`MAX_CAPACITY`].
    Own(u32),
}

impl Capacity {
    /// The number, if it is one of its own.
    #[must_use]
    pub fn own(self) -> Option<u32> {
        match self {
            Self::Own(capacity) => Some(capacity),
            Self::Keep | Self::Default => None,
        }
    }
}

/// A number of its own, or what is there.
impl From<Option<u32>> for Capacity {
    fn from(capacity: Option<u32>) -> Self {
        capacity.map_or(Self::Keep, Self::Own)
    }
}

/// What is written down of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderSpec {
    /// For people; at most 256 bytes, no control characters. `None` leaves what is there; a new provider has no name.
    pub display_name: Option<String>,
    /// How many engagements it can take.
    pub capacity: Capacity,
}

impl ProviderSpec {
    /// Refuses what breaks a limit.
    ///
    /// # Errors
    /// `Invalid`, with the limit.
    pub fn check(&self) -> Result<()> {
        let name = self.display_name.as_deref().unwrap_or_default();
        if name.len() > MAX_DISPLAY_NAME {
            return Err(Error::invalid(format!(
                "the display name has {} bytes; at most {MAX_DISPLAY_NAME}",
                name.len()
            )));
        }
        if let Some(bad) = name.chars().find(|c| c.is_control()) {
            return Err(Error::invalid(format!(
                "the display name has the control character {bad:?}; leave it out"
            )));
        }
        self.capacity
            .own()
            .map_or(Ok(()), |capacity| check_capacity("capacity", capacity))
    }
}

pub(super) fn check_capacity(what: &str, capacity: u32) -> Result<()> {
    if capacity > MAX_CAPACITY {
        return Err(Error::invalid(format!(
            "the {what} {capacity} is above the largest, {MAX_CAPACITY}"
        )));
    }
    Ok(())
}

/// Refuses a batch that is too long.
///
/// # Errors
/// `Invalid`, with the number.
pub fn check_batch(count: usize) -> Result<()> {
    if count > MAX_BATCH {
        return Err(Error::invalid(format!(
            "{count} items in one call; at most {MAX_BATCH}"
        )));
    }
    Ok(())
}

/// What a write did to a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderChange {
    /// The row now.
    pub provider: Provider,
    /// Whether this call changed it. Its version rose if so, and only then.
    pub changed: bool,
    /// The tenure it was online under before the call.
    pub was_online: Option<TenureId>,
}

/// What asking to be online came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnlineOutcome {
    /// It is online under the tenure of the row, which is the one asked for when one was given.
    Online(ProviderChange),
    /// An operator has deactivated it. Nothing changed.
    Deactivated(Provider),
    /// It is online under a tenure with a higher term: this one came late. Nothing changed.
    Stale(Provider),
}

/// What removing a provider came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoveOutcome {
    /// It is gone; the version is that of its tombstone, which is in the outbox.
    Removed(Version),
    /// There was none.
    Absent,
    /// It is online or engaged. Nothing changed.
    Busy(Provider),
}

/// A tenure that the hot store ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedTenure {
    /// Which; its member is the provider.
    pub tenure: TenureId,
    /// When, on the hot store's clock.
    pub at: StoreTime,
    /// Why.
    pub reason: EndReason,
}

/// A provider that joined the hot store anew under another tenure than the ledger has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follow {
    /// What the ledger is expected to have. Its member is the provider.
    pub from: TenureId,
    /// What it is to have. Its member is the same.
    pub to: TenureId,
}

/// By which state to list providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProviderState {
    /// Online.
    Online,
    /// Online, active, and with room.
    Available,
    /// Online, and without room.
    Busy,
    /// Active, and not online.
    Offline,
    /// Deactivated.
    Deactivated,
}

impl ProviderState {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Online,
        Self::Available,
        Self::Busy,
        Self::Offline,
        Self::Deactivated,
    ];

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Available => "available",
            Self::Busy => "busy",
            Self::Offline => "offline",
            Self::Deactivated => "deactivated",
        }
    }

    /// From the name on the wire.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether a provider is in it.
    #[must_use]
    pub fn is_of(self, provider: &Provider) -> bool {
        match self {
            Self::Online => provider.online.is_some(),
            Self::Available => provider.has_room(),
            Self::Busy => provider.online.is_some() && !provider.has_room(),
            Self::Offline => provider.active && provider.online.is_none(),
            Self::Deactivated => !provider.active,
        }
    }
}

/// One who can take work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Who.
    pub provider: ProviderId,
    /// How many engagements it has.
    pub occupancy: u32,
    /// How many it can take.
    pub capacity: u32,
}

impl Candidate {
    /// Where a listing of those who can take work reads on after this one: `occupancy/provider`, the same in every mirror
    /// and ledger, so that a listing may begin in one and go on in another.
    #[must_use]
    pub fn cursor(occupancy: u32, provider: &ProviderId) -> String {
        format!("{occupancy}/{provider}")
    }

    /// After which occupancy and provider a page begins.
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from such a listing.
    pub fn after(page: &PageRequest) -> Result<Option<(u32, ProviderId)>> {
        let place = |text: &String| {
            let (occupancy, provider) = text.split_once('/')?;
            Some((occupancy.parse().ok()?, ProviderId::new(provider).ok()?))
        };
        let after = page.after.as_ref();
        after
            .map(|text| place(text).ok_or_else(|| bad_cursor(text)))
            .transpose()
    }
}

/// How many are in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RosterStats {
    /// Online: available or busy, and in the ledger also those that were not heard lately.
    pub online: u64,
    /// Online, with room, and fresh.
    pub available: u64,
    /// Online, without room.
    pub busy: u64,
    /// Active, and not online.
    pub offline: u64,
    /// Deactivated.
    pub deactivated: u64,
    /// Rows in the outbox: changes that may not have reached the mirror.
    pub dirty: u64,
}
