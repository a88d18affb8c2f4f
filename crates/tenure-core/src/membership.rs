//! Members and their tenures: join, beat, end, read.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::call::{Limits, send};
use crate::error::{Error, Outcome, Result};
use crate::id::{Group, MemberId, TenureId, Term};
use crate::store::{Backend, Call, Page, PageRequest};
use crate::time::StoreTime;
use crate::timing::check_ttl;

/// The maximum number of labels of a member.
pub const MAX_LABELS: usize = 16;
/// The maximum length of a label name or value, in bytes.
pub const MAX_LABEL_BYTES: usize = 256;
/// The maximum number of beats in one call.
pub const MAX_BEATS: usize = 10_000;

/// Free-form metadata of a member: zone, version, address.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// Checks and takes labels: at most 16, names and values of at most 256 bytes, no empty name.
    ///
    /// # Errors
    /// `Invalid`, naming the label and the limit.
    pub fn new(labels: BTreeMap<String, String>) -> Result<Self> {
        if labels.len() > MAX_LABELS {
            return Err(Error::invalid(format!(
                "{} labels; at most {MAX_LABELS} are kept",
                labels.len()
            )));
        }
        for (name, value) in &labels {
            if name.is_empty() || name.len() > MAX_LABEL_BYTES || value.len() > MAX_LABEL_BYTES {
                let shown: String = name.chars().take(64).collect();
                return Err(Error::invalid(format!(
                    "the label {shown:?} has a name of {} and a value of {} bytes; each may have at most {MAX_LABEL_BYTES}, and the name at least 1",
                    name.len(),
                    value.len()
                )));
            }
        }
        Ok(Self(labels))
    }

    /// The labels by name.
    #[must_use]
    pub fn as_map(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// Whether there are no labels.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TryFrom<BTreeMap<String, String>> for Labels {
    type Error = Error;
    fn try_from(labels: BTreeMap<String, String>) -> Result<Self> {
        Self::new(labels)
    }
}

impl From<Labels> for BTreeMap<String, String> {
    fn from(labels: Labels) -> Self {
        labels.0
    }
}

/// The reason a tenure ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The member left.
    Left,
    /// Its end time passed without a beat.
    Lapsed,
    /// The same member joined again.
    Superseded,
    /// An operator expelled the member.
    Expelled,
    /// Its work made no progress, so its own process ended it.
    NoProgress,
    /// The store has no record: its data is gone, or the record expired (after 2 × max ttl).
    Unknown,
}

impl EndReason {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Lapsed => "lapsed",
            Self::Superseded => "superseded",
            Self::Expelled => "expelled",
            Self::NoProgress => "no_progress",
            Self::Unknown => "unknown",
        }
    }

    /// Parses the name on the wire.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [
            Self::Left,
            Self::Lapsed,
            Self::Superseded,
            Self::Expelled,
            Self::NoProgress,
            Self::Unknown,
        ]
        .into_iter()
        .find(|r| r.as_str() == name)
    }

    /// Whether the client may rejoin automatically. After `Superseded` or `Expelled` it stops and reports that.
    #[must_use]
    pub fn may_rejoin(self) -> bool {
        matches!(self, Self::Lapsed | Self::NoProgress | Self::Unknown)
    }

    /// Whether the process of such a tenure may still run. Its leases are then free only after its last deadline.
    #[must_use]
    pub fn may_still_run(self) -> bool {
        matches!(self, Self::Superseded | Self::Expelled | Self::NoProgress)
    }
}

/// A request to begin a tenure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// The member.
    pub member: MemberId,
    /// The time to live without a beat, from 1 s to the store's `max_ttl`.
    pub ttl: Duration,
    /// The member's labels.
    pub labels: Labels,
}

impl Limits for Join {
    fn check(&self, max_ttl: Duration) -> Result<()> {
        check_ttl(self.ttl, max_ttl).map(drop)
    }
}

/// The reply to a join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// The id, which every later call of the member carries.
    pub tenure: TenureId,
    /// The ttl.
    pub ttl: Duration,
    /// The time until it lapses without a beat.
    pub expires_in: Duration,
    /// The tenure of the same member that this join ended, if it was alive.
    pub superseded: Option<TenureId>,
    /// The store time of the join.
    pub as_of: StoreTime,
}

/// The revision of a tenure's holdings. It rises with every claim, acquire, attach or lease release of the tenure
/// itself, and starts at zero.
///
/// The store returns it with each of those calls and with every beat. A client whose revision is higher than the
/// store's has found a lost tail (failover to a lagging replica); one whose revision is lower has missed a reply. In
/// both cases the client reads its holdings again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub struct Revision(pub u64);

impl Revision {
    /// No holding yet.
    pub const NONE: Self = Self(0);

    /// Whether the revision is zero.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0 == 0
    }
}

impl TryFrom<u64> for Revision {
    type Error = Error;
    /// Like all numbers of the group's sequence, a revision is below 2^53, so JSON parsers and Lua doubles represent it
    /// exactly.
    fn try_from(revision: u64) -> Result<Self> {
        if revision > Term::MAX {
            return Err(Error::invalid(format!("the revision {revision} is outside 0..=2^53-1")));
        }
        Ok(Self(revision))
    }
}

/// One heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Beat {
    /// The tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The new ttl, if it changes.
    #[serde(
        rename = "ttl_ms",
        with = "crate::millis::down",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub ttl: Option<Duration>,
    /// The revision of the last list of leases that the client applied: what an operator released up to it is noticed. None
    /// for a client that beats for others, which may work under a lease that it does not know.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, maximum = 9_007_199_254_740_991_i64))]
    pub revision: Revision,
    /// The highest revision of any answer under this tenure. One that the store does not know marks a gap: the store lost
    /// its tail.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, maximum = 9_007_199_254_740_991_i64))]
    pub seen: Revision,
}

impl Beat {
    /// A beat without a ttl change or a revision.
    #[must_use]
    pub fn of(tenure: TenureId) -> Self {
        Self {
            tenure,
            ttl: None,
            revision: Revision::NONE,
            seen: Revision::NONE,
        }
    }

    /// The highest revision that it names.
    #[must_use]
    pub fn newest(&self) -> Revision {
        self.revision.max(self.seen)
    }
}

/// The reply to a beat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeatReply {
    /// The tenure is alive.
    Renewed {
        /// The time until it lapses without another beat, from the store time of the reply.
        expires_in: Duration,
        /// The revision of the tenure's holdings in the store.
        revision: Revision,
    },
    /// The tenure has ended, permanently. The reason is never `Unknown`.
    Ended(EndReason),
    /// The store has no record of the tenure.
    Unknown,
    /// The store cannot write now, and this beat needs a write. It changed nothing and may be repeated. If every beat of
    /// a call is refused, the call fails.
    Refused,
}

impl BeatReply {
    /// What a renewed tenure has: the time until it lapses, and the revision of its holdings.
    ///
    /// # Errors
    /// `Ended`, also for an unknown tenure; `Unavailable` with nothing changed for a refused beat.
    pub fn renewed(self, tenure: &TenureId) -> Result<(Duration, Revision)> {
        match self {
            Self::Renewed { expires_in, revision } => Ok((expires_in, revision)),
            Self::Ended(reason) => Err(Error::ended(tenure, reason)),
            Self::Unknown => Err(Error::ended(tenure, EndReason::Unknown)),
            Self::Refused => {
                let message = format!("the store cannot write now, and the beat of {tenure} needs a write");
                Err(Error::unavailable(message, Outcome::Unchanged))
            }
        }
    }
}

/// The replies to a batch of beats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeatReplies {
    /// One reply per beat, in request order.
    pub replies: Vec<BeatReply>,
    /// The store time of the batch.
    pub as_of: StoreTime,
}

/// The origin of a deliberate end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndBy {
    /// The member leaves.
    Leave,
    /// An operator expels it.
    Expel,
    /// Its process ends it because the work makes no progress.
    NoProgress {
        /// Whether no process of the work is left. Otherwise its leases are free only after its last deadline.
        stopped: bool,
    },
}

impl EndBy {
    /// The reason that is recorded.
    #[must_use]
    pub fn reason(self) -> EndReason {
        match self {
            Self::Leave => EndReason::Left,
            Self::Expel => EndReason::Expelled,
            Self::NoProgress { .. } => EndReason::NoProgress,
        }
    }

    /// Whether no process of the tenure is left, as its own process says.
    #[must_use]
    pub fn is_stopped(self) -> bool {
        matches!(self, Self::Leave | Self::NoProgress { stopped: true })
    }
}

/// The maximum length of the text that a member gives with its end, in bytes.
pub const MAX_END_TEXT: usize = 256;

/// [`MembershipStore::set_labels`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetLabels {
    /// The tenure.
    pub tenure: TenureId,
    /// All its labels from now on.
    pub labels: Labels,
}

/// The number of a member's holdings, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Holdings {
    /// Claims in registries.
    pub claims: u64,
    /// Leases.
    #[serde(default)]
    pub leases: u64,
    /// Connections of sessions.
    #[serde(default)]
    pub connections: u64,
}

impl Holdings {
    /// The sum over all kinds.
    #[must_use]
    pub fn total(self) -> u64 {
        self.claims + self.leases + self.connections
    }
}

/// A member and its current state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Member {
    /// The member.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub member: MemberId,
    /// The current tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// Whether that tenure is alive now, by its end time and the store's clock.
    pub alive: bool,
    /// The ttl.
    #[serde(rename = "ttl_ms", with = "crate::millis::down")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub ttl: Duration,
    /// The time until the tenure lapses without a beat; zero if it is not alive.
    #[serde(rename = "expires_in_ms", with = "crate::millis::down")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub expires_in: Duration,
    /// The start of the tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub joined_at: StoreTime,
    /// The last beat or join known to the store.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub last_beat_at: StoreTime,
    /// The member's labels.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, String>))]
    pub labels: Labels,
    /// The number of its holdings.
    pub holdings: Holdings,
}

/// Rejects an invalid batch of beats before it is sent.
///
/// # Errors
/// `Invalid`, with the value and the limit.
pub fn check_beats(beats: &[Beat], max_ttl: Duration) -> Result<()> {
    if beats.len() > MAX_BEATS {
        return Err(Error::invalid(format!(
            "{} beats in one call; at most {MAX_BEATS}",
            beats.len()
        )));
    }
    beats
        .iter()
        .filter_map(|beat| beat.ttl)
        .try_for_each(|ttl| crate::timing::check_ttl(ttl, max_ttl).map(|_| ()))
}

/// [`MembershipStore::beat`] as a value; also the body of `POST …/beats`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Beats {
    /// At most 10,000. A malformed tenure id or a ttl outside the limits rejects the whole batch, with its index.
    pub beats: Vec<Beat>,
}

impl Limits for Beats {
    fn check(&self, max_ttl: Duration) -> Result<()> {
        check_beats(&self.beats, max_ttl)
    }
    fn items(&self) -> usize {
        self.beats.len()
    }
    fn split_off(&mut self, at: usize) -> Option<Self> {
        let beats = self.beats.split_off(at);
        Some(Self { beats })
    }
    fn add(all: Self::Reply, next: Self::Reply) -> Self::Reply {
        BeatReplies {
            replies: [all.replies, next.replies].concat(),
            ..next
        }
    }
}

/// [`MembershipStore::end`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The tenure.
    pub tenure: TenureId,
    /// The origin of the end.
    pub by: EndBy,
    /// A text for the event. It changes nothing else.
    pub text: Option<String>,
}

impl Limits for End {
    fn check(&self, _: Duration) -> Result<()> {
        let length = self.text.as_ref().map_or(0, String::len);
        if length > MAX_END_TEXT {
            return Err(Error::invalid(format!(
                "the reason has {length} bytes; write at most {MAX_END_TEXT}"
            )));
        }
        Ok(())
    }
}

/// [`MembershipStore::member`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberOf {
    /// The member.
    pub member: MemberId,
}

/// [`MembershipStore::members`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    /// The page.
    pub page: PageRequest,
}

/// The members of a group and their tenures.
///
/// Every mutating method first checks for a gap, writes the tick, and durably ends each tenure it finds past its end
/// time. After an error with [`Outcome::Unchanged`](crate::error::Outcome), nothing else happened; after `Unknown`, the
/// call may have been applied, or may still be until its not-after.
#[async_trait]
pub trait MembershipStore: Backend {
    /// Begins a tenure with a term above every earlier one and supersedes the member's current tenure. Holdings of the
    /// old tenure are not transferred; the janitor releases them. O(log members).
    ///
    /// # Errors
    /// `Invalid` for a ttl outside the limits, `TooLate`, `Unavailable`. A retry after an unknown outcome is safe: it
    /// supersedes the first join.
    async fn join(&self, group: &Group, join: &Join, call: Call) -> Result<Joined> {
        send(self, Some(group), join.clone(), call).await
    }

    /// Extends tenures. Each beat has its own reply, and a failed one does not affect the others. Never creates or
    /// revives a tenure. At most [`MAX_BEATS`]; applied in atomic parts. O(beats).
    ///
    /// # Errors
    /// `Invalid` for more than [`MAX_BEATS`] beats or a bad ttl (before anything is sent), `Unavailable`. A beat needs
    /// no not-after: a late one extends only a living tenure.
    async fn beat(&self, group: &Group, beats: &[Beat]) -> Result<BeatReplies> {
        let beats = beats.to_vec();
        send(self, Some(group), Beats { beats }, Call::default()).await
    }

    /// Ends a tenure. Idempotent: returns the first recorded reason, or `Unknown`. Never affects a later tenure of the
    /// same member. O(log members).
    ///
    /// # Errors
    /// `TooLate`, `Unavailable`.
    async fn end(&self, group: &Group, tenure: &TenureId, by: EndBy, call: Call) -> Result<EndReason> {
        let (tenure, text) = (tenure.clone(), None);
        self.end_with(group, End { tenure, by, text }, call).await
    }

    /// Ends a tenure as [`MembershipStore::end`] does, with a text for the event.
    ///
    /// # Errors
    /// As there; `Invalid` for a text over 256 bytes.
    async fn end_with(&self, group: &Group, end: End, call: Call) -> Result<EndReason> {
        send(self, Some(group), end, call).await
    }

    /// Replaces all labels of a living tenure, without a new one. Writes an event if they differ. O(1).
    ///
    /// # Errors
    /// `Ended` for a tenure that is not alive, `TooLate`, `Unavailable`. A retry is safe.
    async fn set_labels(&self, group: &Group, tenure: &TenureId, labels: &Labels, call: Call) -> Result<()> {
        let (tenure, labels) = (tenure.clone(), labels.clone());
        send(self, Some(group), SetLabels { tenure, labels }, call).await
    }

    /// Reads a member by name; `None` if it has no current tenure. O(1).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn member(&self, group: &Group, member: &MemberId) -> Result<Option<Member>> {
        let member = member.clone();
        send(self, Some(group), MemberOf { member }, Call::default()).await
    }

    /// Lists the current members, page by page. A member that is present throughout appears at least once. O(page).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, `Unavailable`.
    async fn members(&self, group: &Group, page: &PageRequest) -> Result<Page<Member>> {
        let page = page.clone();
        send(self, Some(group), Members { page }, Call::default()).await
    }
}

impl<S: Backend> MembershipStore for S {}
