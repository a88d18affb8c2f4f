//! Rosters on the wire.
//!
//! Most bodies are the types of [`tenure_core::ledger`] themselves, in [`Sourced`](crate::roster::Sourced) when they were
//! read and in [`Written`](crate::roster::Written) when they were written. What is here differs from them: pages, queries,
//! names that may be left out, and what is derived when it is shown.

mod engagement;
mod log;
mod provider;
mod reading;
mod status;

pub use engagement::{EngagementRequest, ReserveRequest};
pub use log::{LogPage, LogQuery};
pub use provider::{HeartbeatAnswer, Provider, ProvidersPage, ProvidersQuery, parse_state};
pub use reading::{AvailabilityAnswer, AvailableAnswer};
pub use status::{RosterState, RostersState, TokensState};

use serde::{Deserialize, Serialize};
use tenure_core::id::RosterName;

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
