//! Detaching on the wire.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::error::{Error, Result};
use tenure_core::id::{ConnectionId, MemberId, SessionId, TenureId};
use tenure_core::session::{Detach, DetachOutcome, Epoch};

use crate::wire::ms;

/// `DELETE …/sessions/{s}/connections/{c}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct DetachQuery {
    /// The tenure that holds it.
    #[cfg_attr(feature = "openapi", param(value_type = String))]
    pub tenure: TenureId,
    /// Detach only if it was not attached again since this epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}

impl DetachQuery {
    /// The tenure, and what to detach.
    ///
    /// # Errors
    /// `Invalid` for an epoch outside 1..=2^53-1.
    pub fn request(self, session: SessionId, connection: ConnectionId) -> Result<(TenureId, Detach)> {
        let epoch = self.epoch.map(Epoch::new).transpose();
        let epoch = epoch.map_err(|error| Error::invalid(format!("in the query: {error}")))?;
        let detach = Detach {
            session,
            connection,
            epoch,
        };
        Ok((self.tenure, detach))
    }
}

/// The outcome of a detach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum DetachWord {
    /// It is detached.
    Detached,
    /// The connection does not exist. Nothing changed.
    NotAttached,
    /// It was attached again since. Nothing changed.
    Stale,
    /// Another tenure holds it. Nothing changed.
    NotHolder,
}

/// The result for one of many connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DetachResult {
    /// The session.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// The connection.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub connection: ConnectionId,
    /// The outcome.
    pub outcome: DetachWord,
    /// With `detached`, if it was the last connection of its session: the grace that has now begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reap_in_ms: Option<u64>,
    /// With `stale`: the epoch of the later attach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub epoch: Option<Epoch>,
    /// With `not_holder`: the member that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub holder: Option<MemberId>,
    /// With `not_holder`: the tenure that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenure: Option<TenureId>,
}

impl DetachResult {
    /// Builds the result for one connection.
    #[must_use]
    pub fn new(session: SessionId, connection: ConnectionId, outcome: DetachOutcome) -> Self {
        let mut result = Self {
            session,
            connection,
            outcome: DetachWord::NotAttached,
            reap_in_ms: None,
            epoch: None,
            holder: None,
            tenure: None,
        };
        match outcome {
            DetachOutcome::Detached { reap_in } => {
                result.outcome = DetachWord::Detached;
                result.reap_in_ms = reap_in.map(ms);
            }
            DetachOutcome::NotAttached => {}
            DetachOutcome::Stale { epoch } => {
                result.outcome = DetachWord::Stale;
                result.epoch = Some(epoch);
            }
            DetachOutcome::NotHolder { by } => {
                result.outcome = DetachWord::NotHolder;
                result.holder = Some(by.member().clone());
                result.tenure = Some(by);
            }
        }
        result
    }

    /// Converts to the core type; `None` if a part is missing.
    #[must_use]
    pub fn outcome(self) -> Option<DetachOutcome> {
        match self.outcome {
            DetachWord::Detached => Some(DetachOutcome::Detached {
                reap_in: self.reap_in_ms.map(Duration::from_millis),
            }),
            DetachWord::NotAttached => Some(DetachOutcome::NotAttached),
            DetachWord::Stale => self.epoch.map(|epoch| DetachOutcome::Stale { epoch }),
            DetachWord::NotHolder => self.tenure.map(|by| DetachOutcome::NotHolder { by }),
        }
    }
}

/// The results for many connections, in request order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DetachSessionsAnswer {
    /// One result per connection.
    pub results: Vec<DetachResult>,
}

impl DetachSessionsAnswer {
    /// Builds the answer, in request order.
    #[must_use]
    pub fn new(asked: impl IntoIterator<Item = Detach>, outcomes: Vec<DetachOutcome>) -> Self {
        let results = asked.into_iter().zip(outcomes);
        Self {
            results: results
                .map(|(detach, outcome)| DetachResult::new(detach.session, detach.connection, outcome))
                .collect(),
        }
    }

    /// Converts to the core type; `None` if the results do not match `asked`.
    #[must_use]
    pub fn outcomes(self, asked: &[Detach]) -> Option<Vec<DetachOutcome>> {
        let in_order = self.results.len() == asked.len()
            && self
                .results
                .iter()
                .zip(asked)
                .all(|(result, detach)| result.session == detach.session && result.connection == detach.connection);
        let outcomes: Option<Vec<_>> = self.results.into_iter().map(DetachResult::outcome).collect();
        outcomes.filter(|_| in_order)
    }
}
