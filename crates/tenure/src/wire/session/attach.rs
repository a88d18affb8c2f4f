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
    /// The tenure of the front-end instance that serves the connection.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The connection. If it is attached elsewhere, it moves here.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub connection: ConnectionId,
    /// The new alias of the session; unchanged by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub alias: Option<Alias>,
    /// Changes to its data: a field replaces the old value, and `null` removes it. At most 64 fields of 4,096 bytes of
    /// JSON.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub data: Data,
    /// The session's new grace, at least 1,000; unchanged by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// Only resume: do not create the session.
    #[serde(default)]
    pub resume_only: bool,
}

impl AttachRequest {
    /// The tenure, and what to attach.
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

/// The outcome of an attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum AttachWord {
    /// The session was created.
    Created,
    /// The session had connections and now has this one, too (or had it already).
    Attached,
    /// The session was disconnected and is active again.
    Resumed,
    /// The alias belongs to another session. Nothing changed.
    AliasTaken,
    /// `resume_only`, and the session cannot be resumed. Nothing changed.
    Gone,
    /// The session has reached a limit. Nothing changed.
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

/// An attached connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttachAnswer {
    /// The current session; its epoch is that of this attach.
    #[serde(flatten)]
    pub session: Session,
    /// `created`, `attached` or `resumed`.
    pub outcome: AttachWord,
    /// The revision of the tenure's holdings; send it with the next beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
}

/// The result for one of many connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttachResult {
    /// The requested session.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// The connection.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub connection: ConnectionId,
    /// The outcome.
    pub outcome: AttachWord,
    /// With `created`, `attached` and `resumed`: the current session; its epoch is that of this attach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Session>,
    /// With `alias_taken`: the session that has the alias.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub taken_by: Option<SessionId>,
    /// With `full`: the limit reached, `connections` or `fields`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub limit: Option<Limit>,
}

impl AttachResult {
    /// Builds the result for one connection.
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

    /// Converts to the core type; `None` if a part is missing.
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

/// The results for many connections, in request order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttachSessionsAnswer {
    /// One result per connection.
    pub results: Vec<AttachResult>,
    /// The revision of the tenure's holdings; send it with the next beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
    /// The revision before this call. If it is lower than the last one received, the store lost its latest writes;
    /// attach the remembered connections again.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision_before: Revision,
}

impl AttachSessionsAnswer {
    /// Builds the answer, in request order.
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

    /// Converts to the core type; `None` if the results do not match `asked`.
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
