//! Members and beats on the wire.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::error::{Error, Result};
use tenure_core::id::{MemberId, TenureId, Term};
pub use tenure_core::membership::Member;
use tenure_core::membership::{BeatReply, EndBy, EndReason, Join, Joined, Labels, Revision};
use tenure_core::store::{DEFAULT_PAGE, Page, PageRequest};
use tenure_core::time::StoreTime;
use tenure_core::timing::DEFAULT_TTL;

use super::ms;

/// `POST …/members`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JoinRequest {
    /// The name of the member: 1 to 200 characters of `A-Z a-z 0-9 . _ : -`.
    #[cfg_attr(feature = "openapi", schema(value_type = String, pattern = "^[A-Za-z0-9._:-]{1,200}$"))]
    pub member: MemberId,
    /// How long the store waits for a beat: 1,000 to the daemon's `max_ttl`; default 30,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Labels of the member: at most 16, with names and values of at most 256 bytes.
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

/// `PUT …/tenures/{t}/labels`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LabelsRequest {
    /// All labels from now on: at most 16, with names and values of at most 256 bytes. Labels that are left out are removed.
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::BTreeMap<String, String>))]
    pub labels: Labels,
}

/// A new tenure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JoinAnswer {
    /// The tenure id, required in every act of the member. Opaque.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The member.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub member: MemberId,
    /// The strictly increasing number that makes the tenure unique.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub term: Term,
    /// The ttl.
    pub ttl_ms: u64,
    /// Time until expiry without a beat, counted from when the request was sent.
    pub expires_in_ms: u64,
    /// The tenure of the same member that this join superseded.
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

/// A page of members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MembersPage {
    /// The members.
    pub members: Vec<Member>,
    /// The cursor for the next page, passed as `after`; absent on the last page.
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

/// Query of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct PageQuery {
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

impl PageQuery {
    /// Converts to a page request.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000.
    pub fn request(self) -> Result<PageRequest> {
        PageRequest::new(self.after, self.limit.unwrap_or(DEFAULT_PAGE))
    }
}

/// `PUT …/tenures/{t}/beat`; the body may be omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BeatRequest {
    /// A new ttl, effective now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// The revision of the last list of leases that the member applied, below 2^53; 0 or absent if none. What an operator
    /// released is noticed by a beat that names the revision of the tenure here.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, maximum = 9_007_199_254_740_991_i64))]
    pub revision: Revision,
    /// The highest revision of any answer under this tenure. One that is unknown to the store shows that the store lost its
    /// latest writes.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, maximum = 9_007_199_254_740_991_i64))]
    pub seen: Revision,
}

/// A renewed tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Renewed {
    /// Time until expiry without another beat, counted from when the request was sent.
    pub expires_in_ms: u64,
    /// The revision of the tenure's holdings at the store; absent if it never held anything. If it differs from the
    /// last one received, the member missed a reply or the store lost its latest writes; the member then re-reads its
    /// holdings.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
}

/// The outcome of one beat of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum BeatStatus {
    /// The tenure is renewed.
    Renewed,
    /// The tenure has ended; `reason` says why.
    Ended,
    /// The store has no record of the tenure.
    Unknown,
    /// The store cannot write now, and this beat needs a write. It changed nothing; repeat it, as after
    /// `store_unavailable`.
    Refused,
}

/// The result of one beat of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BeatResult {
    /// The tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The outcome.
    pub status: BeatStatus,
    /// With `renewed`: time until expiry without another beat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// With `ended`: the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub reason: Option<EndReason>,
    /// With `renewed`: the revision of the tenure's holdings, as for a single beat.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub revision: Revision,
}

impl BeatResult {
    /// Builds the result of one beat.
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
            BeatReply::Refused => result.status = BeatStatus::Refused,
        }
        result
    }

    /// Converts to the core type. `renewed` without a time reads as just expired, and `ended` without a reason as
    /// `unknown`: the safe interpretations of an invalid answer.
    #[must_use]
    pub fn reply(&self) -> BeatReply {
        match (self.status, self.reason) {
            (BeatStatus::Renewed, _) => BeatReply::Renewed {
                expires_in: Duration::from_millis(self.expires_in_ms.unwrap_or(0)),
                revision: self.revision,
            },
            (BeatStatus::Ended, Some(reason)) => BeatReply::Ended(reason),
            (BeatStatus::Refused, _) => BeatReply::Refused,
            _ => BeatReply::Unknown,
        }
    }
}

/// The results of a batch of beats, in request order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BeatsAnswer {
    /// One result per beat.
    pub results: Vec<BeatResult>,
    /// The store's time of the batch.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
}

/// `DELETE …/tenures/{t}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct EndQuery {
    /// An operator ends the tenure instead of its member. The client then does not rejoin.
    #[serde(default)]
    pub expel: bool,
    /// The process of the member ends it because its work makes no progress; the recorded reason is `no_progress`.
    /// `may_run`: a process of the work may still run. `stopped`: none is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub no_progress: Option<StalledWork>,
    /// A text for the event, at most 256 bytes. It changes nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What is left of work that made no progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StalledWork {
    /// A process of it may still run: leases are free only after the last deadline of the tenure, as after an expulsion.
    MayRun,
    /// No process of it is left: leases are free immediately, as after a leave.
    Stopped,
}

impl StalledWork {
    /// Whether no process of it is left.
    #[must_use]
    pub fn of(stopped: bool) -> Self {
        if stopped { Self::Stopped } else { Self::MayRun }
    }

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MayRun => "may_run",
            Self::Stopped => "stopped",
        }
    }
}

impl EndQuery {
    /// Who ends the tenure, and how.
    ///
    /// # Errors
    /// `Invalid` for both at a time.
    pub fn by(&self) -> Result<EndBy> {
        match (self.expel, self.no_progress) {
            (true, Some(_)) => Err(Error::invalid(
                "expel and no_progress are given; an operator expels, and the member itself reports no progress: use one",
            )),
            (true, None) => Ok(EndBy::Expel),
            (false, None) => Ok(EndBy::Leave),
            (false, Some(work)) => {
                let stopped = work == StalledWork::Stopped;
                Ok(EndBy::NoProgress { stopped })
            }
        }
    }
}
