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
    /// The tenure that it is held under.
    #[cfg_attr(feature = "openapi", param(value_type = String))]
    pub tenure: TenureId,
    /// Only if it was not attached again since this epoch.
    #[serde(
        default,
        deserialize_with = "crate::wire::if_given",
        skip_serializing_if = "Option::is_none"
    )]
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

/// What asking to detach a connection came to, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum DetachWord {
    /// It is gone.
    Detached,
    /// There is no such connection. Nothing changed.
    NotAttached,
    /// It was attached again since. Nothing changed.
    Stale,
    /// It is held under another tenure. Nothing changed.
    NotHolder,
}

/// What asking to detach one connection of many came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DetachResult {
    /// The session.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// The connection.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub connection: ConnectionId,
    /// What became of it.
    pub outcome: DetachWord,
    /// With `detached`, when it was the last of its session: the grace has begun, and is this long.
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
    /// With `not_holder`: the tenure it is held under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenure: Option<TenureId>,
}

impl DetachResult {
    /// Puts the answer for one connection together.
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

    /// What it means to a Rust caller; `None` when a part is missing.
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

/// The answers to a request to detach many connections, in the order asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DetachSessionsAnswer {
    /// One each.
    pub results: Vec<DetachResult>,
}

impl DetachSessionsAnswer {
    /// Puts the answers together: one each, in the order asked.
    #[must_use]
    pub fn new(asked: impl IntoIterator<Item = Detach>, outcomes: Vec<DetachOutcome>) -> Self {
        let results = asked.into_iter().zip(outcomes);
        Self {
            results: results
                .map(|(detach, outcome)| DetachResult::new(detach.session, detach.connection, outcome))
                .collect(),
        }
    }

    /// What it means to a Rust caller who asked for this; `None` when it is not an answer to that.
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
