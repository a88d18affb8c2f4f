//! Providers in the ledger.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};
use crate::id::{ProviderId, TenureId};
use crate::membership::EndReason;
use crate::store::{PageRequest, bad_cursor};
use crate::time::StoreTime;

/// The maximum capacity.
pub const MAX_CAPACITY: u32 = 100_000;
/// The maximum length of a display name, in bytes.
pub const MAX_DISPLAY_NAME: usize = 256;
/// The maximum number of providers in one batch: ended tenures, heartbeats, mirrored rows.
pub const MAX_BATCH: usize = 10_000;

/// The version of a row. All rows of a ledger draw from one sequence, so it also rises over a removal and a new
/// creation. Below 2^53, so JSON and Lua represent it exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Version(pub u64);

impl Version {
    /// The version before the first write.
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
    /// The provider.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub provider: ProviderId,
    /// A name for display; `null` if it has none.
    #[serde(default)]
    pub display_name: Option<String>,
    /// Whether it may take work. Only activating changes a deactivated provider.
    pub active: bool,
    // It may be a placeholder created by the ledger, see `Ledger::go_online`.
    /// The tenure it is online under; absent while it is offline.
    #[serde(rename = "tenure", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub online: Option<TenureId>,
    /// The number of engagements it can have.
    pub capacity: u32,
    // Derived from the engagements in the step that changes one.
    /// The number of its pending and active engagements.
    pub occupancy: u32,
    /// When it last came online; `null` if never.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub last_online_at: Option<StoreTime>,
    /// When it last went offline; `null` if never.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub last_offline_at: Option<StoreTime>,
    /// Its last heartbeat; `null` if unknown. For an offline provider, the last one recorded in the ledger, which gets
    /// heartbeats once a minute.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub last_heartbeat_at: Option<StoreTime>,
    /// When it was last deactivated. Earlier tokens stay invalid, also after it is activated again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub revoked_before: Option<StoreTime>,
    /// Rises with every change except heartbeats.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub version: Version,
}

impl Provider {
    /// Whether it is online and active and has room.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.online.is_some() && self.active && self.occupancy < self.capacity
    }

    /// Whether it came online or sent a heartbeat at or after `since`; always without one.
    #[must_use]
    pub fn is_fresh(&self, since: Option<StoreTime>) -> bool {
        since.is_none_or(|since| self.last_heartbeat_at.max(self.last_online_at) >= Some(since))
    }
}

/// A change of a provider's capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Capacity {
    /// Keep it; a new provider gets the roster's default.
    #[default]
    Keep,
    /// Use the roster's [`default_capacity`](super::RosterSettings::default_capacity), and follow its changes.
    Default,
    /// Use this capacity, at most [`MAX_CAPACITY`].
    Own(u32),
}

impl Capacity {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_keep(&self) -> bool {
        *self == Self::Keep
    }

    /// The provider's own capacity, if set.
    #[must_use]
    pub fn own(self) -> Option<u32> {
        match self {
            Self::Own(capacity) => Some(capacity),
            Self::Keep | Self::Default => None,
        }
    }
}

/// Its own capacity; `None` keeps the present one.
impl From<Option<u32>> for Capacity {
    fn from(capacity: Option<u32>) -> Self {
        capacity.map_or(Self::Keep, Self::Own)
    }
}

/// `null` for the roster's default; absent to keep the present one.
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

/// A provider to create or change. Omitted fields stay.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = ProviderRequest))]
pub struct ProviderSpec {
    /// A name for display; at most 256 bytes, no control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The number of engagements it can have, at most 100,000. `null`: the roster's `default_capacity`, also after
    /// changes of it, which is the default of a new provider.
    #[serde(default, skip_serializing_if = "Capacity::is_keep")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>))]
    pub capacity: Capacity,
}

impl ProviderSpec {
    /// Rejects a value out of range.
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

/// Rejects a batch that is too long.
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

/// The effect of a write on a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderChange {
    /// The row now.
    pub provider: Provider,
    /// Whether this call changed it. Its version rises only then.
    pub changed: bool,
    /// The tenure it was online under before the call.
    pub was_online: Option<TenureId>,
}

/// The result of going online.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnlineOutcome {
    /// It is online under the tenure of the row, which is the requested one if there was one.
    Online(ProviderChange),
    /// An operator has deactivated it. Nothing changed.
    Deactivated(Provider),
    /// It is online under a tenure with a higher term: the request was late. Nothing changed.
    Stale(Provider),
}

/// The result of removing a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoveOutcome {
    /// It is removed; the version is that of its tombstone in the outbox.
    Removed(Version),
    /// It did not exist.
    Absent,
    /// It is online or engaged. Nothing changed.
    Busy(Provider),
}

/// A tenure that ended in the hot store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedTenure {
    /// The tenure; its member is the provider.
    pub tenure: TenureId,
    /// When it ended, on the hot store's clock.
    pub at: StoreTime,
    /// The reason of the end.
    pub reason: EndReason,
    /// The last heartbeat that the hot store received; `None` if it is not known.
    pub heard_at: Option<StoreTime>,
}

impl EndedTenure {
    /// Whether a recorded heartbeat shows that the provider was alive when its tenure lapsed: one that the hot store did
    /// not receive, and that is still fresh.
    #[must_use]
    pub fn is_refuted_by(&self, recorded: Option<StoreTime>, stale_after: Duration, now: StoreTime) -> bool {
        self.reason == EndReason::Lapsed
            && recorded.is_some_and(|at| at > self.heard_at.unwrap_or(self.at) && at + stale_after > now)
    }
}

/// The result of applying ended tenures.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EndedBatch {
    /// The rows that this call took offline, by name.
    pub offline: Vec<Provider>,
    /// The rows whose tenure lapsed although the ledger has later heartbeats, by name. They stay online.
    pub spared: Vec<Provider>,
    /// The providers whose rows another transaction is changing, by name: try again.
    pub busy: Vec<ProviderId>,
}

/// A provider that joined the hot store again under another tenure than the ledger has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follow {
    /// The tenure expected in the ledger. Its member is the provider.
    pub from: TenureId,
    /// The new tenure, of the same member.
    pub to: TenureId,
}

/// A state for listing providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProviderState {
    /// Online.
    Online,
    /// Online, active, and with room.
    Available,
    /// Online, without room.
    Busy,
    /// Active and not online.
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

    /// Parses the name on the wire.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether a provider is in this state.
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

/// A provider that can take work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Candidate {
    /// The provider.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub provider: ProviderId,
    /// The number of its engagements.
    pub occupancy: u32,
    /// The number of engagements it can have.
    pub capacity: u32,
}

impl Candidate {
    /// The cursor after this provider in a listing of available ones: `occupancy/provider`, the same in every mirror
    /// and ledger, so a listing can start in one and continue in another.
    #[must_use]
    pub fn cursor(occupancy: u32, provider: &ProviderId) -> String {
        format!("{occupancy}/{provider}")
    }

    /// The occupancy and provider after which a page begins.
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

/// The number of providers by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RosterStats {
    /// Online: available or busy; in the ledger also those without a recent heartbeat.
    pub online: u64,
    /// Online, with room and a recent heartbeat.
    pub available: u64,
    /// Online, without room.
    pub busy: u64,
    /// Active and not online.
    pub offline: u64,
    /// Deactivated.
    pub deactivated: u64,
    /// Rows in the outbox: changes that may not have reached the mirror.
    #[serde(skip)]
    pub dirty: u64,
}
