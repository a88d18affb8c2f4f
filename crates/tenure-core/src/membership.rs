//! Members and their tenures: join, beat, end, look up.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::call::{Limits, ask};
use crate::error::{Error, Result};
use crate::id::{Group, MemberId, TenureId, Term};
use crate::store::{Backend, Call, Page, PageRequest};
use crate::time::StoreTime;
use crate::timing::check_ttl;

/// The most labels a member may carry.
pub const MAX_LABELS: usize = 16;
/// The longest label name or value, in bytes.
pub const MAX_LABEL_BYTES: usize = 256;
/// The most beats in one call.
pub const MAX_BEATS: usize = 10_000;

/// Free text about a member: zone, version, address.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// Takes labels within the limits: at most 16, names and values of at most 256 bytes, no empty name.
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

    /// Whether there are none.
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

/// Why a tenure ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The member said so.
    Left,
    /// Its end time passed without a beat.
    Lapsed,
    /// The same member joined again.
    Superseded,
    /// An operator said so.
    Expelled,
    /// The store has no record of it: the data is gone, or the record was forgotten (after 2 × max ttl).
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
            Self::Unknown => "unknown",
        }
    }

    /// From the name on the wire.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [
            Self::Left,
            Self::Lapsed,
            Self::Superseded,
            Self::Expelled,
            Self::Unknown,
        ]
        .into_iter()
        .find(|r| r.as_str() == name)
    }

    /// Whether the client may join again by itself. After `Superseded` or `Expelled` it stops and says so.
    #[must_use]
    pub fn may_rejoin(self) -> bool {
        matches!(self, Self::Lapsed | Self::Unknown)
    }
}

/// A request to begin a tenure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// Who.
    pub member: MemberId,
    /// How long the store waits for a beat. From 1 s to the store's `max_ttl`.
    pub ttl: Duration,
    /// About the member.
    pub labels: Labels,
}

impl Limits for Join {
    fn check(&self, max_ttl: Duration) -> Result<()> {
        check_ttl(self.ttl, max_ttl).map(drop)
    }
}

/// A tenure that began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Its id, to be carried by every act of the member.
    pub tenure: TenureId,
    /// Its ttl.
    pub ttl: Duration,
    /// How long it lasts without a beat.
    pub expires_in: Duration,
    /// The tenure of the same member that it ended, if one was alive.
    pub superseded: Option<TenureId>,
    /// The store's time of the join.
    pub as_of: StoreTime,
}

/// The number of what a tenure holds: it rises with everything that the tenure itself claims, acquires or gives up (a
/// lease). Zero until then.
///
/// The store tells it in the reply to each of those acts, and again with every beat. A client that was told a higher one
/// than the store knows has noticed that the store lost the end of its data (failover to a replica that lagged); one that
/// was told a lower one has missed a reply. Either way it reads back what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub struct Revision(pub u64);

impl Revision {
    /// Nothing was held yet.
    pub const NONE: Self = Self(0);

    /// Whether it is zero.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0 == 0
    }
}

impl TryFrom<u64> for Revision {
    type Error = Error;
    /// Like all numbers from the group's sequence it is below 2^53, so that every JSON parser and Lua's doubles keep it
    /// whole.
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
    /// Whose.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// A new ttl, from now on.
    #[serde(
        rename = "ttl_ms",
        with = "crate::millis::down",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub ttl: Option<Duration>,
    /// The highest revision that the client was told. One that the store does not know marks a gap: its tail was lost.
    #[serde(default, skip_serializing_if = "Revision::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, maximum = 9_007_199_254_740_991_i64))]
    pub revision: Revision,
}

impl Beat {
    /// A beat that changes no ttl and knows of no holdings.
    #[must_use]
    pub fn of(tenure: TenureId) -> Self {
        Self {
            tenure,
            ttl: None,
            revision: Revision::NONE,
        }
    }
}

/// What a heartbeat came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeatReply {
    /// The tenure goes on and lasts this long without another beat.
    Renewed {
        /// From the store's time of the reply.
        expires_in: Duration,
        /// The number of what the tenure holds, as the store knows it.
        revision: Revision,
    },
    /// The tenure has ended, for this reason (never `Unknown`), and stays ended.
    Ended(EndReason),
    /// The store has no record of the tenure.
    Unknown,
}

/// The answers to a batch of beats, in the order asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beaten {
    /// One each.
    pub replies: Vec<BeatReply>,
    /// The store's time of the batch.
    pub as_of: StoreTime,
}

/// How a tenure is ended on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndBy {
    /// By its member.
    Leave,
    /// By an operator.
    Expel,
}

/// How much a member holds, by kind.
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
    /// All of them.
    #[must_use]
    pub fn total(self) -> u64 {
        self.claims + self.leases + self.connections
    }
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
    /// Whether that tenure is alive now, by its end time and the store's clock.
    pub alive: bool,
    /// Its ttl.
    #[serde(rename = "ttl_ms", with = "crate::millis::down")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub ttl: Duration,
    /// How long it lasts without a beat; zero when it is not alive.
    #[serde(rename = "expires_in_ms", with = "crate::millis::down")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub expires_in: Duration,
    /// When the tenure began.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub joined_at: StoreTime,
    /// When it last beat (or joined), as far as the store knows.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub last_beat_at: StoreTime,
    /// About it.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, String>))]
    pub labels: Labels,
    /// What it holds, counted.
    pub holdings: Holdings,
}

/// Refuses a batch of beats that breaks a limit, before anything is sent.
///
/// # Errors
/// `Invalid`, with the number.
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
    /// At most 10,000. A malformed tenure id refuses the whole batch, naming its index; so does a ttl outside the limits.
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
        Beaten {
            replies: [all.replies, next.replies].concat(),
            ..next
        }
    }
}

/// [`MembershipStore::end`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Which.
    pub tenure: TenureId,
    /// By whom.
    pub by: EndBy,
}

/// [`MembershipStore::member`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberOf {
    /// Who.
    pub member: MemberId,
}

/// [`MembershipStore::members`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    /// Which page.
    pub page: PageRequest,
}

/// Who is alive.
///
/// Every mutating method first looks for a gap, writes the tick, and ends durably any tenure it meets past its end
/// time. On an error with [`Outcome::Unchanged`](crate::error::Outcome) nothing else happened; with `Unknown` the
/// call may have been applied, or may be until its not-after time.
#[async_trait]
pub trait MembershipStore: Backend {
    /// Begins a tenure with a term above every earlier one, superseding the member's current one. What the old tenure
    /// held is not carried over; it goes to the janitor. O(log members).
    ///
    /// # Errors
    /// `Invalid` for a ttl outside the limits, `TooLate`, `Unavailable`. Joining again after an unknown outcome is safe:
    /// it supersedes the first.
    async fn join(&self, group: &Group, join: &Join, call: Call) -> Result<Joined> {
        ask(self, Some(group), join.clone(), call).await
    }

    /// Extends tenures, each answered by itself; one bad beat fails no other. Never creates and never revives. At most
    /// [`MAX_BEATS`]; executed in atomic parts. O(beats).
    ///
    /// # Errors
    /// `Invalid` for more than [`MAX_BEATS`] beats or a bad ttl (before anything is sent), `Unavailable`. A beat needs no
    /// not-after: a late one extends only a tenure that is alive.
    async fn beat(&self, group: &Group, beats: &[Beat]) -> Result<Beaten> {
        let beats = beats.to_vec();
        ask(self, Some(group), Beats { beats }, Call::default()).await
    }

    /// Ends a tenure. Idempotent: answers the reason on record, which is the first one, or `Unknown`. Never touches a
    /// successor of the same name. O(log members).
    ///
    /// # Errors
    /// `TooLate`, `Unavailable`.
    async fn end(&self, group: &Group, tenure: &TenureId, by: EndBy, call: Call) -> Result<EndReason> {
        let tenure = tenure.clone();
        ask(self, Some(group), End { tenure, by }, call).await
    }

    /// Looks a member up by its name. `None` when it has no current tenure. O(1).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn member(&self, group: &Group, member: &MemberId) -> Result<Option<Member>> {
        let member = member.clone();
        ask(self, Some(group), MemberOf { member }, Call::default()).await
    }

    /// Lists the current members, page by page. A member present throughout is listed at least once. O(page).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, `Unavailable`.
    async fn members(&self, group: &Group, page: &PageRequest) -> Result<Page<Member>> {
        let page = page.clone();
        ask(self, Some(group), Members { page }, Call::default()).await
    }
}

impl<S: Backend> MembershipStore for S {}
