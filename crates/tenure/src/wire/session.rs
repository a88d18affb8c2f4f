//! Sessions on the wire.

mod attach;
mod detach;

pub use attach::{AttachAnswer, AttachRequest, AttachResult, AttachSessionsAnswer, AttachWord};
pub use detach::{DetachQuery, DetachResult, DetachSessionsAnswer, DetachWord};

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::error::{Error, Result};
use tenure_core::id::{Alias, TenureId};
use tenure_core::session::{Data, SessionState};
pub use tenure_core::session::{Orphans, Session, SessionStats};
use tenure_core::store::{DEFAULT_PAGE, Page, PageRequest, check_limit};

/// Sessions, page by page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionsPage {
    /// The sessions.
    pub sessions: Vec<Session>,
    /// Pass it as `after` to read on; absent at the end.
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

/// Which sessions to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct SessionsQuery {
    /// Only the one with this alias, if there is one. Not together with `state` or `after`.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub alias: Option<Alias>,
    /// Only those in this state: `active`, `disconnected` or `orphan`.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub state: Option<String>,
    /// The `next` of the page before.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub after: Option<String>,
    /// At most this many, 1 to 1,000; 100 when not given.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<u32>,
}

/// What a [`SessionsQuery`] asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhichSessions {
    /// The one with this alias.
    Alias(Alias),
    /// A page of those in a state, or of all.
    Of(Option<SessionState>, PageRequest),
}

impl SessionsQuery {
    /// Which sessions it asks for.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000, a state that does not exist, or an alias beside a state or a cursor.
    pub fn request(self) -> Result<WhichSessions> {
        let limit = check_limit(self.limit.unwrap_or(DEFAULT_PAGE))?;
        let state = self.state.as_deref().map(SessionState::parse).transpose()?;
        match self.alias {
            None => Ok(WhichSessions::Of(state, PageRequest::new(self.after, limit)?)),
            Some(_) if state.is_some() || self.after.is_some() => Err(Error::invalid(
                "in the query: an alias has at most one session; ask for an alias alone, without state and after",
            )),
            Some(alias) => Ok(WhichSessions::Alias(alias)),
        }
    }
}

/// `PATCH …/sessions/{s}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PatchSessionRequest {
    /// A change to its data: each field given replaces the old one, and `null` removes it.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub data: Data,
    /// Only if this tenure is alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenure: Option<TenureId>,
}

/// Which orphans to list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct OrphansQuery {
    /// Only those whose grace has been over for at least this long; 0 when not given.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub overdue_ms: Option<u64>,
    /// At most this many, 1 to 1,000; 100 when not given.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<u32>,
}

impl OrphansQuery {
    /// For how long overdue, and how many.
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
