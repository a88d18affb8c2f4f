//! Releasing and handing off on the wire.

use serde::{Deserialize, Serialize};
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::{ReleaseOutcome, ReleasedLeases, Token};
use tenure_core::membership::Revision;
use tenure_core::time::StoreTime;

/// `POST …/leases/{l}/release`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseLeaseRequest {
    /// The tenure that releases it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The token of its grant.
    #[cfg_attr(feature = "openapi", schema(value_type = u64, minimum = 1, maximum = 9_007_199_254_740_991_i64))]
    pub token: Token,
    /// Hand it off: reserve it for this member for five seconds, if that is another living member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub to: Option<MemberId>,
    /// The highest revision of any answer under this tenure, below 2^53, as in a beat; 0 or absent if none.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, maximum = 9_007_199_254_740_991_i64))]
    pub seen: Revision,
}

/// The outcome of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ReleaseWord {
    /// It is free; also if it was not held.
    Released,
    /// It is reserved for the successor for a while.
    Reserved,
    /// Another tenure holds it, or this one under another token. Nothing changed.
    NotHolder,
}

/// A released lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseLeaseAnswer {
    /// The lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: LeaseName,
    /// `released` or `reserved`.
    pub outcome: ReleaseWord,
    /// The revision of the tenure's holdings; send it with the next beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
    /// The revision before this call. If it is lower than the last one received, the store lost its latest writes.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision_before: Revision,
    /// The store's time of the answer.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
}

/// The result for one of many leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseLeaseResult {
    /// The lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: LeaseName,
    /// The outcome.
    pub outcome: ReleaseWord,
    /// With `not_holder`: the member that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub holder: Option<MemberId>,
    /// With `not_holder`: the tenure that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenure: Option<TenureId>,
}

impl ReleaseLeaseResult {
    /// Builds the result for one lease.
    #[must_use]
    pub fn new(lease: LeaseName, outcome: ReleaseOutcome) -> Self {
        let (outcome, tenure) = match outcome {
            ReleaseOutcome::Released => (ReleaseWord::Released, None),
            ReleaseOutcome::Reserved => (ReleaseWord::Reserved, None),
            ReleaseOutcome::NotHolder { by } => (ReleaseWord::NotHolder, Some(by)),
        };
        Self {
            lease,
            outcome,
            holder: tenure.as_ref().map(|tenure| tenure.member().clone()),
            tenure,
        }
    }

    /// Converts to the core type; `None` if a part is missing.
    #[must_use]
    pub fn outcome(self) -> Option<ReleaseOutcome> {
        match self.outcome {
            ReleaseWord::Released => Some(ReleaseOutcome::Released),
            ReleaseWord::Reserved => Some(ReleaseOutcome::Reserved),
            ReleaseWord::NotHolder => self.tenure.map(|by| ReleaseOutcome::NotHolder { by }),
        }
    }
}

/// The results for many leases, in request order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseLeasesAnswer {
    /// One result per lease.
    pub results: Vec<ReleaseLeaseResult>,
    /// The revision of the tenure's holdings; send it with the next beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
    /// The revision before this call. If it is lower than the last one received, the store lost its latest writes;
    /// re-read the leases.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision_before: Revision,
    /// The store's time of the answer.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
}

impl ReleaseLeasesAnswer {
    /// Builds the answer, in request order.
    #[must_use]
    pub fn new(leases: impl IntoIterator<Item = LeaseName>, given: ReleasedLeases) -> Self {
        let results = leases.into_iter().zip(given.outcomes);
        Self {
            results: results
                .map(|(lease, outcome)| ReleaseLeaseResult::new(lease, outcome))
                .collect(),
            revision: given.revision,
            revision_before: given.before,
            as_of: given.as_of,
        }
    }

    /// Converts to the core type; `None` if the results do not match `asked`.
    #[must_use]
    pub fn given_up(self, asked: &[(LeaseName, Token)]) -> Option<ReleasedLeases> {
        let in_order = self.results.len() == asked.len()
            && self
                .results
                .iter()
                .zip(asked)
                .all(|(result, (lease, _))| result.lease == *lease);
        let outcomes: Option<Vec<_>> = self.results.into_iter().map(ReleaseLeaseResult::outcome).collect();
        Some(ReleasedLeases {
            outcomes: outcomes.filter(|_| in_order)?,
            revision: self.revision,
            before: self.revision_before,
            as_of: self.as_of,
        })
    }
}
