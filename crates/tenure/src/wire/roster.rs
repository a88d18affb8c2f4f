//! Rosters on the wire.
//!
//! Most bodies are types of [`tenure_core::ledger`], inside [`Sourced`](crate::roster::Sourced) for reads and
//! [`Written`](crate::roster::Written) for writes. This module has what differs: pages, queries, optional names, and
//! derived fields.

mod engagement;
mod hot_store;
mod log;
mod provider;
mod reading;
mod status;

pub use engagement::{EngagementRequest, ReserveRequest};
pub use hot_store::{HotStoreState, RecordedState};
pub use log::{LogPage, LogQuery};
pub use provider::{HeartbeatAnswer, Provider, ProvidersPage, ProvidersQuery, parse_state};
pub use reading::{AvailabilityAnswer, AvailableAnswer};
pub use status::{RosterState, RostersState, TokensState};

use serde::{Deserialize, Serialize};
use tenure_core::id::RosterName;

/// An empty body; it may be omitted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NoFields {}

/// A page of roster names, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RostersPage {
    /// The rosters.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub rosters: Vec<RosterName>,
    /// The cursor for the next page, passed as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[cfg(test)]
mod tests;
