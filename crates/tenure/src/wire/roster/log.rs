//! The log of a roster on the wire.

use serde::{Deserialize, Serialize};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::ProviderId;
use tenure_core::ledger::{self as core, Change, Reason, Version};
use tenure_core::store::{DEFAULT_PAGE, Page, PageRequest};
use tenure_core::time::StoreTime;

/// One change of a provider's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = RosterLogEntry))]
pub struct LogEntry {
    /// Rises along the log, with holes.
    pub id: u64,
    /// Whose state.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub provider: ProviderId,
    /// What changed: `activated`, `deactivated`, `online` or `offline`.
    pub change: String,
    /// Why: `asked`, `operator`, `deactivated`, `edited` (by a statement of somebody's own), or how its tenure ended
    /// (`lapsed`, `left`, `superseded`, `expelled`, `unknown`).
    pub reason: String,
    /// When, on the ledger's clock.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub at: StoreTime,
    /// The version that the provider's row got by it.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub version: Version,
}

impl From<core::LogEntry> for LogEntry {
    fn from(entry: core::LogEntry) -> Self {
        Self {
            id: entry.id,
            provider: entry.provider,
            change: entry.change.as_str().to_owned(),
            reason: entry.reason.as_str().to_owned(),
            at: entry.at,
            version: entry.version,
        }
    }
}

impl TryFrom<LogEntry> for core::LogEntry {
    type Error = Error;

    fn try_from(entry: LogEntry) -> Result<Self> {
        let (Some(change), Some(reason)) = (Change::parse(&entry.change), Reason::parse(&entry.reason)) else {
            let message = format!(
                "the log says {:?} because of {:?}, which this version does not understand",
                super::super::shorten(&entry.change),
                super::super::shorten(&entry.reason)
            );
            return Err(Error::new(ErrorKind::Internal, message));
        };
        Ok(Self {
            id: entry.id,
            provider: entry.provider,
            change,
            reason,
            at: entry.at,
            version: entry.version,
        })
    }
}

/// The log, page by page, forwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = RosterLogPage))]
pub struct LogPage {
    /// The changes, the oldest first.
    pub entries: Vec<LogEntry>,
    /// Pass it as `after` to read on; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl From<Page<core::LogEntry>> for LogPage {
    fn from(page: Page<core::LogEntry>) -> Self {
        Self {
            entries: page.items.into_iter().map(Into::into).collect(),
            next: page.next,
        }
    }
}

/// Which part of the log to read.
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
    /// The `next` of the page before, or the `id` of an entry.
    #[serde(
        default,
        deserialize_with = "super::super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub after: Option<String>,
    /// At most this many, 1 to 1,000; 100 when not given. Not for streams.
    #[serde(
        default,
        deserialize_with = "super::super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<u32>,
}

impl LogQuery {
    /// Of whom, and which page.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000.
    pub fn request(self) -> Result<(Option<ProviderId>, PageRequest)> {
        let page = PageRequest::new(self.after, self.limit.unwrap_or(DEFAULT_PAGE))?;
        Ok((self.provider, page))
    }
}
