//! Providers as the ledger knows them, and what can be asked about many of them.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = ProviderRow))]
pub struct Provider {
    /// Who.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub provider: ProviderId,
    /// For people; `null` when it has none.
    #[serde(default)]
    pub display_name: Option<String>,
    /// What the operator wants: a deactivated provider takes no work, and nothing but activating changes that.
    pub active: bool,
    // It may be a placeholder of the ledger's own making, see `Ledger::go_online`.
    /// The tenure it is online under; absent while it is offline.
    #[serde(rename = "tenure", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub online: Option<TenureId>,
    /// How many it can take.
    pub capacity: u32,
    // Derived from the engagements in the step that changes one.
    /// How many engagements it has that are pending or active.
    pub occupancy: u32,
    /// When it came online last; `null` when it never did.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub last_online_at: Option<StoreTime>,
    /// When it went offline last; `null` when it never did.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub last_offline_at: Option<StoreTime>,
    /// Its last heartbeat; `null` when none is known. Of one that is offline it is the last that the ledger was told, which
    /// happens once a minute.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub last_heartbeat_at: Option<StoreTime>,
    /// When it was deactivated last: tokens from before are void, also after it was activated again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub revoked_before: Option<StoreTime>,
    /// Rises with every change but heartbeats.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
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
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_keep(&self) -> bool {
        *self == Self::Keep
    }

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

/// `null` for the roster's default; absent to keep it.
impl Serialize for Capacity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.own().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Capacity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Default, Self::Own))
    }
}

/// What is written down of a provider. What is not named stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = ProviderRequest))]
pub struct ProviderSpec {
    /// For people; at most 256 bytes, no control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// How many engagements it can take, at most 100,000. `null`: the roster's `default_capacity`, also after that has
    /// changed, as for a new one without a capacity.
    #[serde(default, skip_serializing_if = "Capacity::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>))]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Candidate {
    /// Who.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
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

/// How many providers are in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RosterStats {
    /// Online: available or busy, and from the ledger also those that were not heard lately.
    pub online: u64,
    /// Online, with room, and heard of lately.
    pub available: u64,
    /// Online, without room.
    pub busy: u64,
    /// Active, and not online.
    pub offline: u64,
    /// Deactivated.
    pub deactivated: u64,
    /// Rows in the outbox: changes that may not have reached the mirror.
    #[serde(skip)]
    pub dirty: u64,
}
