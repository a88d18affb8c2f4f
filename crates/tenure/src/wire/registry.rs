//! Claims on the wire.

use serde::{Deserialize, Serialize};
use tenure_core::error::Result;
use tenure_core::id::{Key, MemberId, TenureId};
use tenure_core::membership::Revision;
pub use tenure_core::registry::Claim;
use tenure_core::registry::{ClaimMode, ClaimOutcome};
use tenure_core::store::{DEFAULT_PAGE, Page, PageRequest};

/// `PUT …/claims/{key}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimRequest {
    /// The tenure that claims.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// Claim only if the key is free, owned by a dead member, or owned by an earlier tenure of the same member.
    #[serde(default)]
    pub if_absent: bool,
}

/// `POST …/claims`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimsRequest {
    /// The tenure that claims.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The keys, at most 10,000.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub keys: Vec<Key>,
    /// As for a single claim.
    #[serde(default)]
    pub if_absent: bool,
}

/// The claim mode for `if_absent`.
#[must_use]
pub(crate) fn mode(if_absent: bool) -> ClaimMode {
    if if_absent {
        ClaimMode::IfAbsent
    } else {
        ClaimMode::Take
    }
}

impl ClaimRequest {
    /// The claim mode.
    #[must_use]
    pub fn mode(&self) -> ClaimMode {
        mode(self.if_absent)
    }
}

impl ClaimsRequest {
    /// The claim mode.
    #[must_use]
    pub fn mode(&self) -> ClaimMode {
        mode(self.if_absent)
    }
}

/// The outcome of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ClaimWord {
    /// The key was free.
    New,
    /// The same tenure owned it already.
    Kept,
    /// It was taken from its previous owner.
    Moved,
    /// `if_absent`, and a living member owns it. Nothing changed.
    Held,
}

/// A claimed key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimAnswer {
    /// The key.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub key: Key,
    /// Its new owner.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub owner: MemberId,
    /// The tenure it is held under.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// `new`, `kept` or `moved`.
    pub outcome: ClaimWord,
    /// With `moved`: the previous owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub from: Option<TenureId>,
    /// The member of `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub from_member: Option<MemberId>,
    /// The revision of the tenure's holdings; send it with the next beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
}

/// The result for one of many keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimResult {
    /// The key.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub key: Key,
    /// The outcome.
    pub outcome: ClaimWord,
    /// With `moved`: the previous owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub from: Option<TenureId>,
    /// The member of `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub from_member: Option<MemberId>,
    /// With `held`: the member that owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub owner: Option<MemberId>,
    /// With `held`: the tenure it is held under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenure: Option<TenureId>,
}

impl ClaimResult {
    /// Builds the result for one key.
    #[must_use]
    pub fn new(key: Key, outcome: ClaimOutcome) -> Self {
        let (outcome, from, tenure) = match outcome {
            ClaimOutcome::New => (ClaimWord::New, None, None),
            ClaimOutcome::Kept => (ClaimWord::Kept, None, None),
            ClaimOutcome::Moved { from } => (ClaimWord::Moved, Some(from), None),
            ClaimOutcome::Held { by } => (ClaimWord::Held, None, Some(by)),
        };
        Self {
            key,
            outcome,
            from_member: from.as_ref().map(|from| from.member().clone()),
            from,
            owner: tenure.as_ref().map(|tenure| tenure.member().clone()),
            tenure,
        }
    }

    /// Converts to the core type; `None` if a part is missing.
    #[must_use]
    pub fn outcome(self) -> Option<ClaimOutcome> {
        match self.outcome {
            ClaimWord::New => Some(ClaimOutcome::New),
            ClaimWord::Kept => Some(ClaimOutcome::Kept),
            ClaimWord::Moved => self.from.map(|from| ClaimOutcome::Moved { from }),
            ClaimWord::Held => self.tenure.map(|by| ClaimOutcome::Held { by }),
        }
    }
}

/// The results of many claims, in request order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimsAnswer {
    /// One result per key.
    pub results: Vec<ClaimResult>,
    /// The revision of the tenure's holdings; send it with the next beat. Absent if there were no keys.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
    /// The revision before this call. If it is lower than the last one received, the store lost its latest writes;
    /// claim the remembered keys again.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision_before: Revision,
}

/// A page of claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimsPage {
    /// The claims.
    pub claims: Vec<Claim>,
    /// The cursor for the next page, passed as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl From<Page<Claim>> for ClaimsPage {
    fn from(page: Page<Claim>) -> Self {
        Self {
            claims: page.items,
            next: page.next,
        }
    }
}

/// Query of the claim listing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct ClaimsQuery {
    /// Only claims of this member.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub owner: Option<MemberId>,
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

impl ClaimsQuery {
    /// Converts to an owner and a page request.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000.
    pub fn request(self) -> Result<(Option<MemberId>, PageRequest)> {
        Ok((
            self.owner,
            PageRequest::new(self.after, self.limit.unwrap_or(DEFAULT_PAGE))?,
        ))
    }
}

/// `DELETE …/claims/{key}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct ReleaseQuery {
    /// The tenure that releases the key.
    #[cfg_attr(feature = "openapi", param(value_type = String))]
    pub tenure: TenureId,
}
