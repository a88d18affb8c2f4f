//! Acquiring on the wire.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::{AcquireOutcome, Acquired, Token};
use tenure_core::membership::Revision;
use tenure_core::settling::GapCause;
use tenure_core::time::StoreTime;

use crate::wire::{ms, ms_up};

/// `POST …/leases/{l}/acquire`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AcquireRequest {
    /// Under which tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
}

/// What asking for a lease came to, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum AcquireWord {
    /// It is that tenure's from now on.
    Granted,
    /// It was that tenure's already.
    Kept,
    /// Somebody else holds it. Nothing changed.
    Held,
    /// It is kept for a successor who has not come for it yet. Nothing changed.
    Reserved,
    /// It is free, but the group is inside a grace period and may have forgotten a holder. Nothing changed.
    Unsettled,
}

/// A lease that was acquired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AcquireAnswer {
    /// The lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: LeaseName,
    /// The member that holds it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub holder: MemberId,
    /// The tenure it is held under.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The fencing token: higher than every token before it in this group, below 2^53.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub token: Token,
    /// How long the tenure lasts without a beat, and the lease with it. Count from when the request was sent.
    pub expires_in_ms: u64,
    /// `granted` or `kept`.
    pub outcome: AcquireWord,
    /// With `granted`: the ended tenure it was taken over from, when the janitor had not come yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub from: Option<TenureId>,
    /// What the tenure holds now goes by this number; send it with the next beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
    /// The store's time of the answer.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
}

/// What asking for one lease of many came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AcquireResult {
    /// The lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: LeaseName,
    /// What became of it.
    pub outcome: AcquireWord,
    /// With `granted` and `kept`: the fencing token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub token: Option<Token>,
    /// With `granted`: the ended tenure it was taken over from, when the janitor had not come yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub from: Option<TenureId>,
    /// With `held`: the member that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub holder: Option<MemberId>,
    /// With `held`: the tenure it is held under. That tenure may have ended; its process may still run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenure: Option<TenureId>,
    /// With `reserved`: for whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub reserved_for: Option<MemberId>,
    /// With `held`, `reserved` and `unsettled`: when asking again makes sense, if nothing is heard until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// With `unsettled`: why the group's grace began (`new`, `silent`, `clock_back`, `data_loss` or `tail_loss`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub cause: Option<GapCause>,
}

impl AcquireResult {
    /// Puts the answer for one lease together.
    #[must_use]
    pub fn new(lease: LeaseName, outcome: AcquireOutcome) -> Self {
        let word = match &outcome {
            AcquireOutcome::Granted { .. } => AcquireWord::Granted,
            AcquireOutcome::Kept { .. } => AcquireWord::Kept,
            AcquireOutcome::Held { .. } => AcquireWord::Held,
            AcquireOutcome::Reserved { .. } => AcquireWord::Reserved,
            AcquireOutcome::Unsettled { .. } => AcquireWord::Unsettled,
        };
        let mut result = Self {
            lease,
            outcome: word,
            token: outcome.token(),
            from: None,
            holder: None,
            tenure: None,
            reserved_for: None,
            retry_after_ms: None,
            cause: None,
        };
        let wait = match outcome {
            AcquireOutcome::Granted { from, .. } => {
                result.from = from;
                return result;
            }
            AcquireOutcome::Kept { .. } => return result,
            AcquireOutcome::Held { by, free_in } => {
                result.holder = Some(by.member().clone());
                result.tenure = Some(by);
                free_in
            }
            AcquireOutcome::Reserved { to, free_in } => {
                result.reserved_for = Some(to);
                free_in
            }
            AcquireOutcome::Unsettled { retry_in, cause } => {
                result.cause = Some(cause);
                retry_in
            }
        };
        result.retry_after_ms = Some(ms_up(wait));
        result
    }

    /// What it means to a Rust caller; `None` when a part is missing.
    #[must_use]
    pub fn outcome(self) -> Option<AcquireOutcome> {
        let wait = self.retry_after_ms.map(Duration::from_millis);
        Some(match self.outcome {
            AcquireWord::Granted => AcquireOutcome::Granted {
                token: self.token?,
                from: self.from,
            },
            AcquireWord::Kept => AcquireOutcome::Kept { token: self.token? },
            AcquireWord::Held => AcquireOutcome::Held {
                by: self.tenure?,
                free_in: wait?,
            },
            AcquireWord::Reserved => AcquireOutcome::Reserved {
                to: self.reserved_for?,
                free_in: wait?,
            },
            AcquireWord::Unsettled => AcquireOutcome::Unsettled {
                retry_in: wait?,
                cause: self.cause?,
            },
        })
    }
}

/// The answers to a request for many leases, in the order asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AcquireLeasesAnswer {
    /// One each.
    pub results: Vec<AcquireResult>,
    /// How long the asking tenure lasts without a beat. Count from when the request was sent.
    pub expires_in_ms: u64,
    /// What the tenure holds now goes by this number; send it with the next beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
    /// What it held before this call went by this number. Lower than what you were told last: the store lost the end of
    /// its data; read back what you hold.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision_before: Revision,
    /// The store's time of the answer.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
}

impl AcquireLeasesAnswer {
    /// Puts the answers together: one each, in the order asked.
    #[must_use]
    pub fn new(leases: Vec<LeaseName>, acquired: Acquired) -> Self {
        let results = leases.into_iter().zip(acquired.outcomes);
        Self {
            results: results
                .map(|(lease, outcome)| AcquireResult::new(lease, outcome))
                .collect(),
            expires_in_ms: ms(acquired.expires_in),
            revision: acquired.revision,
            revision_before: acquired.before,
            as_of: acquired.as_of,
        }
    }

    /// What it means to a Rust caller who asked for these leases; `None` when it is not an answer to that.
    #[must_use]
    pub fn acquired(self, asked: &[LeaseName]) -> Option<Acquired> {
        let in_order = self.results.len() == asked.len()
            && self
                .results
                .iter()
                .zip(asked)
                .all(|(result, lease)| result.lease == *lease);
        let outcomes: Option<Vec<_>> = self.results.into_iter().map(AcquireResult::outcome).collect();
        Some(Acquired {
            outcomes: outcomes.filter(|_| in_order)?,
            expires_in: Duration::from_millis(self.expires_in_ms),
            revision: self.revision,
            before: self.revision_before,
            as_of: self.as_of,
        })
    }
}
