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
    /// Under which tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// Only where the key is free, owned by the dead, or by an earlier tenure of the same member.
    #[serde(default)]
    pub if_absent: bool,
}

/// `POST …/claims`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimsRequest {
    /// Under which tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// At most 10,000.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub keys: Vec<Key>,
    /// As for a single claim.
    #[serde(default)]
    pub if_absent: bool,
}

/// What `if_absent` means to a store.
#[must_use]
pub(crate) fn mode(if_absent: bool) -> ClaimMode {
    if if_absent {
        ClaimMode::IfAbsent
    } else {
        ClaimMode::Take
    }
}

impl ClaimRequest {
    /// How it takes the key.
    #[must_use]
    pub fn mode(&self) -> ClaimMode {
        mode(self.if_absent)
    }
}

impl ClaimsRequest {
    /// How it takes the keys.
    #[must_use]
    pub fn mode(&self) -> ClaimMode {
        mode(self.if_absent)
    }
}

/// What a claim came to, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ClaimWord {
    /// The key was free.
    New,
    /// The same tenure owned it already.
    Kept,
    /// It was taken over.
    Moved,
    /// `if_absent`, and somebody alive owns it. Nothing changed.
    Held,
}

/// A key that was claimed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimAnswer {
    /// The key.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub key: Key,
    /// Its owner from now on.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub owner: MemberId,
    /// The tenure it is held under.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// `new`, `kept` or `moved`.
    pub outcome: ClaimWord,
    /// With `moved`: the owner before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub from: Option<TenureId>,
    /// What the tenure holds now goes by this number; send it with the next beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
}

/// What the claim of one key of many came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimResult {
    /// The key.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub key: Key,
    /// What became of it.
    pub outcome: ClaimWord,
    /// With `moved`: the owner before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub from: Option<TenureId>,
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
    /// Puts the answer for one key together.
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
            from,
            owner: tenure.as_ref().map(|tenure| tenure.member().clone()),
            tenure,
        }
    }

    /// What it means to a Rust caller; `None` when a part is missing.
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

/// The answers to many claims, in the order asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimsAnswer {
    /// One each.
    pub results: Vec<ClaimResult>,
    /// What the tenure holds now goes by this number; send it with the next beat. Absent when no keys were asked for.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
    /// What it held before this call went by this number. Lower than what you were told last: the store lost the end of
    /// its data; claim again what you remember.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision_before: Revision,
}

/// Claims, page by page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ClaimsPage {
    /// The claims.
    pub claims: Vec<Claim>,
    /// Pass it as `after` to read on; absent at the end.
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

/// Which claims to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct ClaimsQuery {
    /// Only of this member.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub owner: Option<MemberId>,
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

impl ClaimsQuery {
    /// The owner and the page it asks for.
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
    /// The tenure that gives the key up.
    #[cfg_attr(feature = "openapi", param(value_type = String))]
    pub tenure: TenureId,
}
