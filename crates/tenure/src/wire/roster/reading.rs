//! Who can take work, and how many are in which state, on the wire.

use serde::{Deserialize, Serialize};
use tenure_core::error::Result;
use tenure_core::id::ProviderId;
use tenure_core::ledger as core;
use tenure_core::store::{DEFAULT_PAGE, PageRequest};
use tenure_core::time::StoreTime;

use super::Source;

/// Which part of those who can take work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct AvailableQuery {
    /// The `next` of the page before.
    #[serde(
        default,
        deserialize_with = "super::super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub after: Option<String>,
    /// At most this many, 1 to 1,000; 100 when not given.
    #[serde(
        default,
        deserialize_with = "super::super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<u32>,
}

impl AvailableQuery {
    /// The page.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000.
    pub fn page(self) -> Result<PageRequest> {
        PageRequest::new(self.after, self.limit.unwrap_or(DEFAULT_PAGE))
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

impl From<core::Candidate> for Candidate {
    fn from(candidate: core::Candidate) -> Self {
        Self {
            provider: candidate.provider,
            occupancy: candidate.occupancy,
            capacity: candidate.capacity,
        }
    }
}

impl From<Candidate> for core::Candidate {
    fn from(candidate: Candidate) -> Self {
        Self {
            provider: candidate.provider,
            occupancy: candidate.occupancy,
            capacity: candidate.capacity,
        }
    }
}

/// Who can take work, page by page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AvailableAnswer {
    /// They: the least occupied first, then by name.
    pub providers: Vec<Candidate>,
    /// Pass it as `after` to read on; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// `mirror`, or `ledger` while there is no mirror.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub source: Source,
}

/// Whether anybody can take work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AvailabilityAnswer {
    /// Whether anybody can.
    pub available: bool,
    /// How many can.
    pub count: u64,
    /// When they were counted.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
    /// `mirror`, or `ledger` while there is no mirror.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub source: Source,
    /// Whether everyone was looked at; the count is never too high.
    pub complete: bool,
}

/// How many providers are in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
    /// `mirror`, or `ledger` while there is no mirror.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub source: Source,
}

impl RosterStats {
    /// The counts, and where they are from.
    #[must_use]
    pub fn new(stats: core::RosterStats, source: Source) -> Self {
        Self {
            online: stats.online,
            available: stats.available,
            busy: stats.busy,
            offline: stats.offline,
            deactivated: stats.deactivated,
            source,
        }
    }
}

impl From<RosterStats> for core::RosterStats {
    fn from(stats: RosterStats) -> Self {
        Self {
            online: stats.online,
            available: stats.available,
            busy: stats.busy,
            offline: stats.offline,
            deactivated: stats.deactivated,
            dirty: 0,
        }
    }
}
