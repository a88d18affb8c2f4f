//! Who can take work, on the wire.

use serde::{Deserialize, Serialize};
use tenure_core::ledger::Candidate;
use tenure_core::store::Page;

use crate::roster::{Availability, Source, Sourced};

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

impl From<Sourced<Page<Candidate>>> for AvailableAnswer {
    fn from(found: Sourced<Page<Candidate>>) -> Self {
        Self {
            providers: found.value.items,
            next: found.value.next,
            source: found.source,
        }
    }
}

/// Whether anybody can take work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AvailabilityAnswer {
    /// Whether anybody can.
    pub available: bool,
    /// How many, and where that is from.
    #[serde(flatten)]
    pub counted: Sourced<Availability>,
}

impl From<Sourced<Availability>> for AvailabilityAnswer {
    fn from(counted: Sourced<Availability>) -> Self {
        let available = counted.value.is_any();
        Self { available, counted }
    }
}
