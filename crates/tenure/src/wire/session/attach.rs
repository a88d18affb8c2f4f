//! Attaching on the wire.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::id::{Alias, ConnectionId, SessionId, TenureId};
use tenure_core::membership::Revision;
use tenure_core::session::{Attach, AttachOutcome, Attached, Data, How, Limit};

use super::Session;

/// `PUT …/sessions/{s}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttachRequest {
    /// Under which tenure: that of the front-end instance that serves the connection.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The connection. One that is attached elsewhere moves here.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub connection: ConnectionId,
    /// The session's other name from now on; left as it is when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub alias: Option<Alias>,
    /// A change to its data: each field given replaces the old one, and `null` removes it. At most 64 fields of 4,096
    /// bytes of JSON.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub data: Data,
    /// Its own grace from now on, at least 1,000; left as it is when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// Do not make it: there has to be a session to come back to.
    #[serde(default)]
    pub resume_only: bool,
}

impl AttachRequest {
    /// The tenure, and what to attach under it.
    #[must_use]
    pub fn attach(self, session: SessionId) -> (TenureId, Attach) {
        let attach = Attach {
            session,
            connection: self.connection,
            alias: self.alias,
            data: self.data,
            grace: self.grace_ms.map(Duration::from_millis),
            resume_only: self.resume_only,
        };
        (self.tenure, attach)
    }
}

/// What asking to attach a connection came to, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum AttachWord {
    /// The session is new.
    Created,
    /// The session had connections, and has this one now as well (or had it already).
    Attached,
    /// The session was disconnected, and is active again.
    Resumed,
    /// The alias belongs to another session. Nothing changed.
    AliasTaken,
    /// `resume_only`, and there is no session to come back to. Nothing changed.
    Gone,
    /// The session cannot take more. Nothing changed.
    Full,
}

impl From<How> for AttachWord {
    fn from(how: How) -> Self {
        match how {
            How::Created => Self::Created,
            How::Attached => Self::Attached,
            How::Resumed => Self::Resumed,
        }
    }
}

/// A connection that was attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttachAnswer {
    /// The session now; its epoch is that of this attach.
    #[serde(flatten)]
    pub session: Session,
    /// `created`, `attached` or `resumed`.
    pub outcome: AttachWord,
    /// What the tenure holds now goes by this number; send it with the next beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
}

/// What asking to attach one connection of many came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttachResult {
    /// The session that was asked for.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// The connection.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub connection: ConnectionId,
    /// What became of it.
    pub outcome: AttachWord,
    /// With `created`, `attached` and `resumed`: the session now; its epoch is that of this attach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Session>,
    /// With `alias_taken`: the session that has the alias.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub taken_by: Option<SessionId>,
    /// With `full`: of what, `connections` or `fields`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub limit: Option<Limit>,
}

impl AttachResult {
    /// Puts the answer for one connection together.
    #[must_use]
    pub fn new(session: SessionId, connection: ConnectionId, outcome: AttachOutcome) -> Self {
        let mut result = Self {
            session,
            connection,
            outcome: AttachWord::Gone,
            now: None,
            taken_by: None,
            limit: None,
        };
        match outcome {
            AttachOutcome::Attached { how, session } => {
                result.outcome = how.into();
                result.now = Some(*session);
            }
            AttachOutcome::AliasTaken { by } => {
                result.outcome = AttachWord::AliasTaken;
                result.taken_by = Some(by);
            }
            AttachOutcome::Gone => {}
            AttachOutcome::Full { of } => {
                result.outcome = AttachWord::Full;
                result.limit = Some(of);
            }
        }
        result
    }

    /// What it means to a Rust caller; `None` when a part is missing.
    #[must_use]
    pub fn outcome(self) -> Option<AttachOutcome> {
        let how = match self.outcome {
            AttachWord::Created => How::Created,
            AttachWord::Attached => How::Attached,
            AttachWord::Resumed => How::Resumed,
            AttachWord::AliasTaken => return self.taken_by.map(|by| AttachOutcome::AliasTaken { by }),
            AttachWord::Gone => return Some(AttachOutcome::Gone),
            AttachWord::Full => return self.limit.map(|of| AttachOutcome::Full { of }),
        };
        let session = Box::new(self.now?);
        Some(AttachOutcome::Attached { how, session })
    }
}

/// The answers to a request to attach many connections, in the order asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttachSessionsAnswer {
    /// One each.
    pub results: Vec<AttachResult>,
    /// What the tenure holds now goes by this number; send it with the next beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
    /// What it held before this call went by this number. Lower than what you were told last: the store lost the end of
    /// its data; attach again what you remember.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision_before: Revision,
}

impl AttachSessionsAnswer {
    /// Puts the answers together: one each, in the order asked.
    #[must_use]
    pub fn new(asked: impl IntoIterator<Item = (SessionId, ConnectionId)>, attached: Attached) -> Self {
        let results = asked.into_iter().zip(attached.outcomes);
        Self {
            results: results
                .map(|((session, connection), outcome)| AttachResult::new(session, connection, outcome))
                .collect(),
            revision: attached.revision,
            revision_before: attached.before,
        }
    }

    /// What it means to a Rust caller who asked for this; `None` when it is not an answer to that.
    #[must_use]
    pub fn attached(self, asked: &[Attach]) -> Option<Attached> {
        let in_order = self.results.len() == asked.len()
            && self
                .results
                .iter()
                .zip(asked)
                .all(|(result, attach)| result.session == attach.session && result.connection == attach.connection);
        let outcomes: Option<Vec<_>> = self.results.into_iter().map(AttachResult::outcome).collect();
        Some(Attached {
            outcomes: outcomes.filter(|_| in_order)?,
            revision: self.revision,
            before: self.revision_before,
        })
    }
}
