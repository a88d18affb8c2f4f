//! Releasing and handing off on the wire.

use serde::{Deserialize, Serialize};
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::{GivenUp, ReleaseOutcome, Token};
use tenure_core::membership::Revision;
use tenure_core::time::StoreTime;

/// `POST …/leases/{l}/release`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseLeaseRequest {
    /// The tenure that gives it up.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The token it was granted with.
    #[cfg_attr(feature = "openapi", schema(value_type = u64, minimum = 1, maximum = 9_007_199_254_740_991_i64))]
    pub token: Token,
    /// Hand it off: keep it for this member for five seconds, if that is another one that is alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub to: Option<MemberId>,
}

/// What giving a lease up came to, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ReleaseWord {
    /// It is free. Also when nobody held it.
    Released,
    /// It is free, and kept for the successor for a while.
    Reserved,
    /// Another tenure holds it, or this one does under another token. Nothing changed.
    NotHolder,
}

/// A lease that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseLeaseAnswer {
    /// The lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: LeaseName,
    /// `released` or `reserved`.
    pub outcome: ReleaseWord,
    /// What the tenure holds now goes by this number; send it with the next beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
    /// The store's time of the answer.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
}

/// What giving up one lease of many came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseLeaseResult {
    /// The lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub lease: LeaseName,
    /// What became of it.
    pub outcome: ReleaseWord,
    /// With `not_holder`: the member that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub holder: Option<MemberId>,
    /// With `not_holder`: the tenure it is held under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenure: Option<TenureId>,
}

impl ReleaseLeaseResult {
    /// Puts the answer for one lease together.
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

    /// What it means to a Rust caller; `None` when a part is missing.
    #[must_use]
    pub fn outcome(self) -> Option<ReleaseOutcome> {
        match self.outcome {
            ReleaseWord::Released => Some(ReleaseOutcome::Released),
            ReleaseWord::Reserved => Some(ReleaseOutcome::Reserved),
            ReleaseWord::NotHolder => self.tenure.map(|by| ReleaseOutcome::NotHolder { by }),
        }
    }
}

/// The answers to a request to give many leases up, in the order asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseLeasesAnswer {
    /// One each.
    pub results: Vec<ReleaseLeaseResult>,
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

impl ReleaseLeasesAnswer {
    /// Puts the answers together: one each, in the order asked.
    #[must_use]
    pub fn new(leases: impl IntoIterator<Item = LeaseName>, given: GivenUp) -> Self {
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

    /// What it means to a Rust caller who gave these leases up; `None` when it is not an answer to that.
    #[must_use]
    pub fn given_up(self, asked: &[(LeaseName, Token)]) -> Option<GivenUp> {
        let in_order = self.results.len() == asked.len()
            && self
                .results
                .iter()
                .zip(asked)
                .all(|(result, (lease, _))| result.lease == *lease);
        let outcomes: Option<Vec<_>> = self.results.into_iter().map(ReleaseLeaseResult::outcome).collect();
        Some(GivenUp {
            outcomes: outcomes.filter(|_| in_order)?,
            revision: self.revision,
            before: self.revision_before,
            as_of: self.as_of,
        })
    }
}
