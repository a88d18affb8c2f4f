//! Available providers on the wire.

use serde::{Deserialize, Serialize};
use tenure_core::ledger::Candidate;
use tenure_core::store::Page;

use crate::roster::{Availability, Source, Sourced};

/// A page of available providers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AvailableAnswer {
    /// The providers, least occupied first, then by name.
    pub providers: Vec<Candidate>,
    /// The cursor for the next page, passed as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// `mirror`, or `ledger` while there is no mirror.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub source: Source,
}

impl From<Sourced<Page<Candidate>>> for AvailableAnswer {
    fn from(found: Sourced<Page<Candidate>>) -> Self {
        Self {
            providers: found.value.items,
            next: found.value.next,
            source: found.source,
        }
    }
}

/// Whether a provider is available.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AvailabilityAnswer {
    /// Whether at least one is available.
    pub available: bool,
    /// Their number, and the source of it.
    #[serde(flatten)]
    pub counted: Sourced<Availability>,
}

impl From<Sourced<Availability>> for AvailabilityAnswer {
    fn from(counted: Sourced<Availability>) -> Self {
        let available = counted.value.is_any();
        Self { available, counted }
    }
}
