//! Rosters on the wire.

mod engagement;
mod log;
mod provider;
mod reading;
mod settings;
mod status;

pub use engagement::{Engagement, EngagementRequest, MoveRequest, ReserveRequest};
pub use log::{LogEntry, LogPage, LogQuery};
pub use provider::{HeartbeatAnswer, Provider, ProviderRequest, ProvidersPage, ProvidersQuery, parse_state};
pub use reading::{AvailabilityAnswer, AvailableAnswer, AvailableQuery, Candidate, RosterStats};
pub use settings::{PatchRosterRequest, RosterSettings, SettingsAnswer};
pub use status::{RosterState, RostersState, TokensState};

use serde::{Deserialize, Serialize};
use tenure_core::id::RosterName;

use crate::roster;

/// Where an answer is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The hot copy: who is there is known to the moment.
    Mirror,
    /// The durable truth, while there is no hot copy to be believed.
    Ledger,
}

impl From<roster::Source> for Source {
    fn from(source: roster::Source) -> Self {
        match source {
            roster::Source::Mirror => Self::Mirror,
            roster::Source::Ledger => Self::Ledger,
        }
    }
}

impl From<Source> for roster::Source {
    fn from(source: Source) -> Self {
        match source {
            Source::Mirror => Self::Mirror,
            Source::Ledger => Self::Ledger,
        }
    }
}

/// The body of calls that need none: it may be left out, and has no fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NoFields {}

/// The names of rosters, page by page, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RostersPage {
    /// The rosters.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub rosters: Vec<RosterName>,
    /// Pass it as `after` to read on; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[cfg(test)]
mod tests;
