//! Members and beats on the wire.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::error::Result;
use tenure_core::id::{MemberId, TenureId, Term};
use tenure_core::membership::{self as core, BeatReply, EndReason, Holdings, Join, Joined, Labels, Revision};
use tenure_core::store::{DEFAULT_PAGE, Page, PageRequest};
use tenure_core::time::{StoreTime, micros};
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

/// How much a member holds, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HoldingsShape {
    /// Claims in registries.
    pub claims: u64,
    /// Leases.
    pub leases: u64,
    /// Connections of sessions.
    pub connections: u64,
}

/// A member as the store sees it now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Member {
    /// Who.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub member: MemberId,
    /// Its current tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// Whether that tenure is alive now.
    pub alive: bool,
    /// Its ttl.
    pub ttl_ms: u64,
    /// How long it lasts without a beat; 0 when it is not alive.
    pub expires_in_ms: u64,
    /// The same in microseconds, the resolution of the store's clock.
    pub expires_in_us: u64,
    /// When the tenure began.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub joined_at: StoreTime,
    /// When it last beat (or joined), as far as the store knows.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub last_beat_at: StoreTime,
    /// About it.
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::BTreeMap<String, String>))]
    pub labels: Labels,
    /// What it holds, counted.
    #[cfg_attr(feature = "openapi", schema(value_type = HoldingsShape))]
    pub holdings: Holdings,
}

impl From<core::Member> for Member {
    fn from(member: core::Member) -> Self {
        Self {
            joined_at: member.joined_at(),
            member: member.member,
            tenure: member.tenure,
            alive: member.alive,
            ttl_ms: ms(member.ttl),
            expires_in_ms: ms(member.expires_in),
            expires_in_us: micros(member.expires_in),
            last_beat_at: member.last_beat_at,
            labels: member.labels,
            holdings: member.holdings,
        }
    }
}

impl From<Member> for core::Member {
    fn from(member: Member) -> Self {
        Self {
            member: member.member,
            tenure: member.tenure,
            alive: member.alive,
            ttl: Duration::from_millis(member.ttl_ms),
            expires_in: Duration::from_micros(member.expires_in_us),
            last_beat_at: member.last_beat_at,
            labels: member.labels,
            holdings: member.holdings,
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

impl From<Page<core::Member>> for MembersPage {
    fn from(page: Page<core::Member>) -> Self {
        Self {
            members: page.items.into_iter().map(Into::into).collect(),
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
    #[serde(
        default,
        deserialize_with = "super::revision",
        skip_serializing_if = "Revision::is_none"
    )]
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

/// One beat of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BeatItem {
    /// Whose.
    #[serde(deserialize_with = "super::name")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// A new ttl, from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// The highest revision that the member was told, as for a single beat.
    #[serde(
        default,
        deserialize_with = "super::revision",
        skip_serializing_if = "Revision::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, maximum = 9_007_199_254_740_991_i64))]
    pub revision: Revision,
}

impl From<BeatItem> for core::Beat {
    fn from(item: BeatItem) -> Self {
        Self {
            tenure: item.tenure,
            ttl: item.ttl_ms.map(Duration::from_millis),
            revision: item.revision,
        }
    }
}

/// `POST …/beats`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BeatsRequest {
    /// At most 10,000. A malformed tenure id refuses the whole batch, naming its index; so does a ttl outside the limits.
    pub beats: Vec<BeatItem>,
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
    #[serde(deserialize_with = "super::name")]
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
