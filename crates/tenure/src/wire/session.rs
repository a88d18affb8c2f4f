//! Sessions on the wire.

mod attach;
mod detach;

pub use attach::{
    AttachAnswer, AttachRequest, AttachResult, AttachSessionsAnswer, AttachSessionsRequest, AttachWord, SessionToAttach,
};
pub use detach::{
    ConnectionToDetach, DetachQuery, DetachResult, DetachSessionsAnswer, DetachSessionsRequest, DetachWord,
};

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, de};
use tenure_core::error::{Error, Result};
use tenure_core::id::{Alias, SessionId, TenureId};
use tenure_core::session::{self as core, Data, Epoch, SessionState};
use tenure_core::store::{DEFAULT_PAGE, Page, PageRequest, check_limit};
use tenure_core::time::{StoreTime, micros};

use super::ms;

/// A session as the store sees it now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Session {
    /// Its id.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// `active`, `disconnected` or `orphan`. Connections of the dead do not make it active.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub state: SessionState,
    /// How many connections it has under living tenures.
    pub connections: u64,
    /// Its other name, unique in the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub alias: Option<Alias>,
    /// What users keep with it, field by field.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub data: Data,
    /// Which attach was its last: a number that rises for ever. With the session's id it is a key for side effects that
    /// must not happen twice.
    #[serde(deserialize_with = "epoch")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub epoch: Epoch,
    /// When it was made.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created_at: StoreTime,
    /// When its data last changed.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub updated_at: StoreTime,
    /// Its own grace; absent when it has that of the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// When its last connection went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub disconnected_at: Option<StoreTime>,
    /// With `disconnected_at`: how long it can still be resumed; 0 for an orphan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reap_in_ms: Option<u64>,
    /// The same in microseconds, the resolution of the store's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reap_in_us: Option<u64>,
}

impl From<core::Session> for Session {
    fn from(session: core::Session) -> Self {
        Self {
            session: session.session,
            state: session.state,
            connections: session.connections,
            alias: session.alias,
            data: session.data,
            epoch: session.epoch,
            created_at: session.created_at,
            updated_at: session.updated_at,
            grace_ms: session.grace.map(ms),
            disconnected_at: session.disconnected_at,
            reap_in_ms: session.reap_in.map(ms),
            reap_in_us: session.reap_in.map(micros),
        }
    }
}

impl From<Session> for core::Session {
    fn from(session: Session) -> Self {
        Self {
            session: session.session,
            state: session.state,
            connections: session.connections,
            alias: session.alias,
            data: session.data,
            epoch: session.epoch,
            created_at: session.created_at,
            updated_at: session.updated_at,
            grace: session.grace_ms.map(Duration::from_millis),
            disconnected_at: session.disconnected_at,
            reap_in: session
                .reap_in_us
                .map(Duration::from_micros)
                .or(session.reap_in_ms.map(Duration::from_millis)),
        }
    }
}

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

impl From<Page<core::Session>> for SessionsPage {
    fn from(page: Page<core::Session>) -> Self {
        Self {
            sessions: page.items.into_iter().map(Into::into).collect(),
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

/// How many sessions there are, by index: those whose connections are all of the dead count as active until the janitor has
/// come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionStats {
    /// With connections.
    pub active: u64,
    /// Disconnected and resumable.
    pub disconnected: u64,
    /// Disconnected for longer than their grace.
    pub orphans: u64,
}

impl From<core::SessionStats> for SessionStats {
    fn from(stats: core::SessionStats) -> Self {
        Self {
            active: stats.active,
            disconnected: stats.disconnected,
            orphans: stats.orphans,
        }
    }
}

impl From<SessionStats> for core::SessionStats {
    fn from(stats: SessionStats) -> Self {
        Self {
            active: stats.active,
            disconnected: stats.disconnected,
            orphans: stats.orphans,
        }
    }
}

/// A session whose grace is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Orphan {
    /// Which.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// Its last attach.
    #[serde(deserialize_with = "epoch")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub epoch: Epoch,
    /// When its last connection went.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub disconnected_at: StoreTime,
    /// For how long its grace has been over.
    pub overdue_ms: u64,
    /// The same in microseconds, the resolution of the store's clock.
    pub overdue_us: u64,
}

/// Orphans, those first whose grace ended first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OrphansAnswer {
    /// They.
    pub orphans: Vec<Orphan>,
    /// Entries of the index that belong to no disconnected session; `reconcile` of a sweep repairs them.
    pub skipped: u64,
}

impl From<core::Orphans> for OrphansAnswer {
    fn from(found: core::Orphans) -> Self {
        let orphans = found.orphans.into_iter().map(|orphan| Orphan {
            session: orphan.session,
            epoch: orphan.epoch,
            disconnected_at: orphan.disconnected_at,
            overdue_ms: ms(orphan.overdue),
            overdue_us: micros(orphan.overdue),
        });
        Self {
            orphans: orphans.collect(),
            skipped: found.skipped,
        }
    }
}

impl From<OrphansAnswer> for core::Orphans {
    fn from(answer: OrphansAnswer) -> Self {
        let orphans = answer.orphans.into_iter().map(|orphan| core::Orphan {
            session: orphan.session,
            epoch: orphan.epoch,
            disconnected_at: orphan.disconnected_at,
            overdue: Duration::from_micros(orphan.overdue_us),
        });
        Self {
            orphans: orphans.collect(),
            skipped: answer.skipped,
        }
    }
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

/// Reads an epoch, refusing what cannot be one.
fn epoch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Epoch, D::Error> {
    Epoch::new(u64::deserialize(deserializer)?).map_err(de::Error::custom)
}

/// Reads an epoch that may be left out.
fn epoch_if_given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Epoch>, D::Error> {
    let given = Option::<u64>::deserialize(deserializer)?;
    given.map(Epoch::new).transpose().map_err(de::Error::custom)
}

#[cfg(test)]
mod tests;
