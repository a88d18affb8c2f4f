//! The log of a roster on the wire.

use serde::{Deserialize, Serialize};
use tenure_core::error::Result;
use tenure_core::id::ProviderId;
use tenure_core::ledger::LogEntry;
use tenure_core::store::{DEFAULT_PAGE, Page, PageRequest};

/// A page of the log, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = RosterLogPage))]
pub struct LogPage {
    /// The changes, oldest first.
    pub entries: Vec<LogEntry>,
    /// The cursor for the next page, passed as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl From<Page<LogEntry>> for LogPage {
    fn from(page: Page<LogEntry>) -> Self {
        Self {
            entries: page.items,
            next: page.next,
        }
    }
}

/// Query of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct LogQuery {
    /// Only changes of this provider.
    #[serde(
        default,
        deserialize_with = "super::super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub provider: Option<ProviderId>,
    /// The `next` of the previous page, or the `id` of an entry.
    #[serde(
        default,
        deserialize_with = "super::super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub after: Option<String>,
    /// Page size, 1 to 1,000; default 100. Not for streams.
    #[serde(
        default,
        deserialize_with = "super::super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<u32>,
}

impl LogQuery {
    /// Converts to a provider and a page request.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000.
    pub fn request(self) -> Result<(Option<ProviderId>, PageRequest)> {
        let page = PageRequest::new(self.after, self.limit.unwrap_or(DEFAULT_PAGE))?;
        Ok((self.provider, page))
    }
}
