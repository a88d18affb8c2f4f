//! Members and beats on the wire.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::error::Result;
use tenure_core::id::{MemberId, TenureId, Term};
pub use tenure_core::membership::Member;
use tenure_core::membership::{BeatReply, EndReason, Join, Joined, Labels, Revision};
use tenure_core::store::{DEFAULT_PAGE, Page, PageRequest};
use tenure_core::time::StoreTime;
use tenure_core::timing::DEFAULT_TTL;

use super::ms;

/// `POST …/members`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JoinRequest {
    /// Who joins: 1 to 200 characters of `A-Z a-z 0-9 . _ : -`.
    #[cfg_attr(feature = "openapi", schema(value_type = String, pattern = "^[A-Za-z0-9._:-]{1,200}$"))]
    pub member: MemberId,
    /// How long the store waits for a beat, 1,000 to the daemon's `max_ttl`. 30,000 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Free text about the member: at most 16, names and values of at most 256 bytes.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::BTreeMap<String, String>))]
    pub labels: Labels,
}

impl From<JoinRequest> for Join {
    fn from(request: JoinRequest) -> Self {
        let ttl = request.ttl_ms.map_or(DEFAULT_TTL, Duration::from_millis);
        Self {
            member: request.member,
            ttl,
            labels: request.labels,
        }
    }
}

/// A tenure that began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JoinAnswer {
    /// The tenure id, to be carried by every act of the member. Opaque.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// Who joined.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub member: MemberId,
    /// The strictly rising number that makes the tenure unique.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub term: Term,
    /// Its ttl.
    pub ttl_ms: u64,
    /// How long it lasts without a beat. Count from when the request was sent.
    pub expires_in_ms: u64,
    /// The tenure of the same member that this join ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub superseded: Option<TenureId>,
    /// The store's time of the join.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
}

impl From<Joined> for JoinAnswer {
    fn from(joined: Joined) -> Self {
        Self {
            member: joined.tenure.member().clone(),
            term: joined.tenure.term(),
            tenure: joined.tenure,
            ttl_ms: ms(joined.ttl),
            expires_in_ms: ms(joined.expires_in),
            superseded: joined.superseded,
            as_of: joined.as_of,
        }
    }
}

impl From<JoinAnswer> for Joined {
    fn from(answer: JoinAnswer) -> Self {
        Self {
            tenure: answer.tenure,
            ttl: Duration::from_millis(answer.ttl_ms),
            expires_in: Duration::from_millis(answer.expires_in_ms),
            superseded: answer.superseded,
            as_of: answer.as_of,
        }
    }
}

/// Members, page by page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MembersPage {
    /// The members.
    pub members: Vec<Member>,
    /// Pass it as `after` to read on; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl From<Page<Member>> for MembersPage {
    fn from(page: Page<Member>) -> Self {
        Self {
            members: page.items,
            next: page.next,
        }
    }
}

/// Which page of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct PageQuery {
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

impl PageQuery {
    /// The page it asks for.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000.
    pub fn request(self) -> Result<PageRequest> {
        PageRequest::new(self.after, self.limit.unwrap_or(DEFAULT_PAGE))
    }
}

/// `PUT …/tenures/{t}/beat`; the whole body may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BeatRequest {
    /// A new ttl, from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// The highest revision that the member was told; below 2^53, and 0 or nothing when it was told none. One that the
    /// store does not know shows that it lost the end of its data.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, maximum = 9_007_199_254_740_991_i64))]
    pub revision: Revision,
}

/// A tenure that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Renewed {
    /// How long it lasts without another beat. Count from when the request was sent.
    pub expires_in_ms: u64,
    /// What the tenure holds goes by this number, as the store knows it; absent when it never held anything. Another one
    /// than the member was told last: it missed a reply, or the store lost the end of its data. Then it reads back what it
    /// holds.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
}

/// What one beat of a batch came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum BeatStatus {
    /// The tenure goes on.
    Renewed,
    /// It has ended, and stays ended; `reason` says why.
    Ended,
    /// The store has no record of it.
    Unknown,
}

/// The answer to one beat of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BeatResult {
    /// Whose.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// What became of it.
    pub status: BeatStatus,
    /// With `renewed`: how long it lasts without another beat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// With `ended`: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub reason: Option<EndReason>,
    /// With `renewed`: the number of what the tenure holds, as for a single beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
}

impl BeatResult {
    /// Puts the answer to one beat together.
    #[must_use]
    pub fn new(tenure: TenureId, reply: BeatReply) -> Self {
        let mut result = Self {
            tenure,
            status: BeatStatus::Unknown,
            expires_in_ms: None,
            reason: None,
            revision: Revision::NONE,
        };
        match reply {
            BeatReply::Renewed { expires_in, revision } => {
                result.status = BeatStatus::Renewed;
                result.expires_in_ms = Some(ms(expires_in));
                result.revision = revision;
            }
            BeatReply::Ended(reason) => {
                result.status = BeatStatus::Ended;
                result.reason = Some(reason);
            }
            BeatReply::Unknown => {}
        }
        result
    }

    /// What it means to a Rust caller. A `renewed` without a time counts as just expired, an `ended` without a reason
    /// as unknown: the safe readings of an answer that breaks the contract.
    #[must_use]
    pub fn reply(&self) -> BeatReply {
        match (self.status, self.reason) {
            (BeatStatus::Renewed, _) => BeatReply::Renewed {
                expires_in: Duration::from_millis(self.expires_in_ms.unwrap_or(0)),
                revision: self.revision,
            },
            (BeatStatus::Ended, Some(reason)) => BeatReply::Ended(reason),
            _ => BeatReply::Unknown,
        }
    }
}

/// The answers to a batch of beats, in the order asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BeatsAnswer {
    /// One each.
    pub results: Vec<BeatResult>,
    /// The store's time of the batch.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
}

/// `DELETE …/tenures/{t}`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct EndQuery {
    /// An operator ends it, not its member. The client will not join again by itself.
    #[serde(default)]
    pub expel: bool,
}
