//! Sessions on the wire.

mod attach;
mod detach;

pub use attach::{AttachAnswer, AttachRequest, AttachResult, AttachSessionsAnswer, AttachWord};
pub use detach::{DetachQuery, DetachResult, DetachSessionsAnswer, DetachWord};

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::error::{Error, Result};
use tenure_core::id::{Alias, TenureId};
use tenure_core::session::{Data, SessionState, Sessions};
pub use tenure_core::session::{Orphans, Session, SessionStats};
use tenure_core::store::{DEFAULT_PAGE, Page, PageRequest, check_limit};

/// A page of sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionsPage {
    /// The sessions.
    pub sessions: Vec<Session>,
    /// The cursor for the next page, passed as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl From<Page<Session>> for SessionsPage {
    fn from(page: Page<Session>) -> Self {
        Self {
            sessions: page.items,
            next: page.next,
        }
    }
}

/// Query of the session listing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct SessionsQuery {
    /// Only the session with this alias. Not together with `state` or `after`.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub alias: Option<Alias>,
    /// Only sessions in this state: `active`, `disconnected` or `orphan`.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub state: Option<String>,
    /// Only sessions without connections for at least this long; not with `alias` or the state `active`.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub older_than_ms: Option<u64>,
    /// The `next` of the previous page.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub after: Option<String>,
    /// Page size, 1 to 1,000; default 100.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<u32>,
}

/// The sessions that a [`SessionsQuery`] requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionFilter {
    /// The session with this alias.
    Alias(Alias),
    /// A page of all sessions, or of those in a state and of an age.
    Of(Sessions),
}

impl SessionsQuery {
    /// Converts to a filter.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000, an unknown state, or an alias together with a state or a cursor.
    pub fn request(self) -> Result<SessionFilter> {
        let limit = check_limit(self.limit.unwrap_or(DEFAULT_PAGE))?;
        let state = self.state.as_deref().map(SessionState::parse).transpose()?;
        match self.alias {
            None => Ok(SessionFilter::Of(Sessions {
                state,
                older_than: Duration::from_millis(self.older_than_ms.unwrap_or(0)),
                page: PageRequest::new(self.after, limit)?,
            })),
            Some(_) if state.is_some() || self.after.is_some() || self.older_than_ms.is_some() => Err(Error::invalid(
                "in the query: give alias alone, without state, older_than_ms and after; an alias has at most one session",
            )),
            Some(alias) => Ok(SessionFilter::Alias(alias)),
        }
    }
}

/// `PATCH …/sessions/{s}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PatchSessionRequest {
    /// Changes to its data: a field replaces the old value, and `null` removes it.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub data: Data,
    /// Apply only if this tenure is alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenure: Option<TenureId>,
}

/// Query of the orphan listing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct OrphansQuery {
    /// Only sessions whose grace ended at least this long ago; default 0.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub overdue_ms: Option<u64>,
    /// Page size, 1 to 1,000; default 100.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<u32>,
}

impl OrphansQuery {
    /// Converts to the minimum overdue time and the limit.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000.
    pub fn request(self) -> Result<(Duration, u32)> {
        let limit = check_limit(self.limit.unwrap_or(DEFAULT_PAGE))?;
        Ok((Duration::from_millis(self.overdue_ms.unwrap_or(0)), limit))
    }
}

#[cfg(test)]
mod tests;
