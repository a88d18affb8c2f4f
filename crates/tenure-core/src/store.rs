//! What a store is: the sum of one trait per noun, with paging, call limits and options.

pub mod around;

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::brake::BrakeSettings;
use crate::call::{Ask, Limits, Op, Reply, ask};
use crate::error::{Error, Result};
use crate::event::{EventId, EventLog};
use crate::id::Group;
use crate::lease::LeaseStore;
use crate::membership::MembershipStore;
use crate::registry::RegistryStore;
use crate::roster::RosterMirror;
use crate::session::{SessionSettings, SessionStore};
use crate::sweep::{BATCH, Sweep};
use crate::target::TargetStore;
use crate::time::StoreTime;
use crate::timing::DEFAULT_MAX_TTL;

/// The limits of one mutating call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Call {
    /// The store time after which the call must not take effect, checked in the atomic step itself. A store that talks
    /// over a network adds its own (from its request timeout) and uses the earlier one.
    pub not_after: Option<StoreTime>,
}

impl Call {
    /// A call with a not-after time.
    #[must_use]
    pub fn not_after(at: StoreTime) -> Self {
        Self { not_after: Some(at) }
    }
}

/// The most items of a page.
pub const MAX_PAGE: u32 = 1_000;
/// The items of a page when not said otherwise.
pub const DEFAULT_PAGE: u32 = 100;

/// Which page to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// The `next` of the page before; opaque.
    pub after: Option<String>,
    /// At most this many items, 1 to 1,000.
    pub limit: u32,
}

impl Default for PageRequest {
    fn default() -> Self {
        Self {
            after: None,
            limit: DEFAULT_PAGE,
        }
    }
}

impl PageRequest {
    /// Takes a page request within the limits.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000.
    pub fn new(after: Option<String>, limit: u32) -> Result<Self> {
        let page = Self { after, limit };
        page.check().map(|()| page)
    }

    /// Refuses a limit outside 1..=1000.
    ///
    /// # Errors
    /// `Invalid`, with the number.
    pub fn check(&self) -> Result<()> {
        check_limit(self.limit).map(drop)
    }
}

/// Refuses a page size outside 1..=1000.
///
/// # Errors
/// `Invalid`, with the number.
pub fn check_limit(limit: u32) -> Result<u32> {
    if limit == 0 || limit > MAX_PAGE {
        return Err(Error::invalid(format!("the limit {limit} is outside 1 to {MAX_PAGE}")));
    }
    Ok(limit)
}

/// Refuses a cursor that is not from the page before.
#[must_use]
pub fn bad_cursor(cursor: &str) -> Error {
    let shown: String = cursor.chars().take(64).collect();
    Error::invalid(format!(
        "{shown:?} is not a place in this listing; pass the `next` of the page before, unchanged"
    ))
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items, never more than the limit.
    pub items: Vec<T>,
    /// Where to read on; `None` at the end. A page may be empty and still have a next one.
    pub next: Option<String>,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            next: None,
        }
    }
}

/// What every store is configured with. All processes that share a store must agree on these.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreOptions {
    /// Joins above this ttl are refused, and no lease is granted for this long after data was lost. Longer allows slower
    /// members, and costs a longer wait after a loss.
    pub max_ttl: Duration,
    /// The brake.
    pub brake: BrakeSettings,
    /// How many events a group keeps.
    pub events_max: u64,
    /// About how many bytes the events of a group may take; the oldest go first.
    pub events_bytes: u64,
    /// Whether `evicted` events list the keys removed. `why KEY` needs them; they cost room in the event log.
    pub event_keys: bool,
    /// Sessions.
    pub sessions: SessionSettings,
    /// For how long a group has to be empty before it is forgotten; at least twice `max_ttl`.
    pub forget_after: Duration,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            max_ttl: DEFAULT_MAX_TTL,
            brake: BrakeSettings::default(),
            events_max: 100_000,
            events_bytes: 64 << 20,
            event_keys: true,
            sessions: SessionSettings::default(),
            forget_after: Duration::from_secs(86_400),
        }
    }
}

/// How sure we are that the store answers, without asking it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Health {
    /// The last calls were answered.
    Up,
    /// It does not answer.
    Down {
        /// What was seen last.
        reason: String,
    },
}

/// How a finding of the doctor is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Works, but can hurt.
    Warning,
    /// Does not work.
    Error,
}

/// Something the doctor looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Finding {
    /// What was looked at, in a word or two.
    pub check: String,
    /// `ok`, `warning` or `error`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub severity: Severity,
    /// What was found, and what to do about it.
    pub detail: String,
}

impl Finding {
    /// A finding.
    pub fn new(check: impl Into<String>, severity: Severity, detail: impl Into<String>) -> Self {
        Self {
            check: check.into(),
            severity,
            detail: detail.into(),
        }
    }
}

impl Finding {
    /// The same finding of one part of what was examined: `disk` of the `ledger` is `ledger disk`.
    #[must_use]
    pub fn of(self, part: &str) -> Self {
        let check = match self.check.starts_with(part) {
            true => self.check,
            false => format!("{part} {}", self.check),
        };
        Self { check, ..self }
    }
}

/// The group that a store ticks to see whether it takes writes, and with a `.` and a number after it one for each node. They
/// have no members.
pub const PROBE_GROUP: &str = "tenure.readyz";

/// Whether a group is there only for [`Store::probe`]. Listings leave it out.
#[must_use]
pub fn is_probe(group: &Group) -> bool {
    let rest = group.as_str().strip_prefix(PROBE_GROUP);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// What a store said when it was asked whether it takes writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// When that was.
    pub as_of: StoreTime,
    /// The nodes that take no writes, each with the reason. Groups on the other nodes are served.
    pub away: Vec<String>,
}

/// What a store implements: one method that answers every call, and what it says of itself without one.
///
/// Whatever implements it is a [`Store`], with the typed methods of all nouns.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Answers a call that is within its limits and has at most [`part`](Self::part) items. A store that decides itself
    /// implements [`Serve`](crate::call::Serve) for each call and answers with [`serve_all`](crate::call::serve_all).
    ///
    /// # Errors
    /// Those of the call. After one with [`Outcome::Unchanged`](crate::error::Outcome) nothing happened.
    async fn call(&self, ask: Ask) -> Result<Reply>;

    /// Joins above this ttl are refused before they are sent.
    fn max_ttl(&self) -> Duration;

    /// How many items of a call one step takes.
    fn part(&self, _op: &Op) -> usize {
        BATCH as usize
    }

    /// Whether it is a daemon elsewhere, which sweeps, and has rosters of its own and a ledger with them.
    fn is_elsewhere(&self) -> bool {
        false
    }

    /// Where it is, for people: a URL without secrets.
    fn place(&self) -> String;

    /// Whether it answered lately. No I/O.
    fn health(&self) -> Health;

    /// The time within which one step is answered, if need be by an error that says what is known of its outcome. A step is
    /// an `end`, a look at one member, or a call with at most [`BATCH`] beats, claims or leases.
    /// `None` for a store without such a time-out; its callers have one ([`Timeout`](crate::timeout::Timeout)). No I/O.
    fn answers_within(&self) -> Option<Duration> {
        None
    }

    /// Which of the store's nodes has a group, by a name that tells them apart; `None` for a store of one node, and while
    /// none is known. No I/O.
    fn node_of(&self, _group: &Group) -> Option<String> {
        None
    }

    /// Waits until the store can never serve again, and says why: its disk cannot be trusted any more. A process that exists
    /// for it should end then, so that the next one looks at the disk afresh. Most stores have no such end.
    async fn until_broken(&self) -> Error {
        std::future::pending().await
    }

    /// Looks at what could hurt: version, settings, permissions. Never fails; what cannot be looked at is a finding.
    async fn examine(&self) -> Vec<Finding>;

    /// Lets go of connections, files and threads. Calls after it fail with `Unavailable`.
    async fn close(&self);
}

/// [`Store::now`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now;

/// [`Store::probe`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// For how long the nodes are waited for.
    pub patience: Duration,
}

/// [`Store::groups`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListGroups;

/// [`Store::newest_events`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewestEvents {
    /// Of which groups.
    pub groups: Vec<Group>,
}

/// It is not cut: the groups lie on many nodes, and the store cuts by node.
impl Limits for NewestEvents {
    fn items(&self) -> usize {
        self.groups.len()
    }
}

/// [`Store::find_groups`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FindGroups;

/// Everything a store does. Connect to one by URL with the `tenure` crate.
#[async_trait]
pub trait Store: MembershipStore + RegistryStore + LeaseStore + TargetStore + SessionStore + EventLog + Sweep {
    /// The mirror of rosters; `None` for a store that is a daemon elsewhere.
    fn mirror(&self) -> Option<&dyn RosterMirror>;

    /// The store's clock now, by asking it. The cheapest round trip there is.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn now(&self) -> Result<StoreTime> {
        ask(self, None, Now, Call::default()).await
    }

    /// Whether it takes writes now, found out by writing what concerns no group. A store of several nodes asks each of them
    /// and waits at most `patience` for it; it fails only when none of them takes writes.
    ///
    /// # Errors
    /// `Unavailable`, `Denied`, and whatever else a write fails with.
    async fn probe(&self, patience: Duration) -> Result<Probed> {
        ask(self, None, Probe { patience }, Call::default()).await
    }

    /// The groups it has. May list one that is empty by now. O(groups).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn groups(&self) -> Result<Vec<Group>> {
        ask(self, None, ListGroups, Call::default()).await
    }

    /// The number of the newest event of each of these groups, to learn which of them has changed. Groups that could not be
    /// asked are left out. Empty for a store that one process alone writes to: that process knows. O(groups asked for).
    ///
    /// # Errors
    /// `Unavailable` when none of them could be asked.
    async fn newest_events(&self, groups: &[Group]) -> Result<Vec<(Group, EventId)>> {
        let groups = groups.to_vec();
        ask(self, None, NewestEvents { groups }, Call::default()).await
    }

    /// Searches a part of what is stored for groups that [`groups`](Store::groups) has lost, and puts them back. `true`
    /// when there is more to search: call again, after a pause. A store whose list cannot be lost finds nothing.
    ///
    /// # Errors
    /// `Unavailable`, after which the search starts again; `Denied` where the store's user may not search.
    async fn find_groups(&self) -> Result<bool> {
        ask(self, None, FindGroups, Call::default()).await
    }
}

impl<S: Backend> Store for S {
    fn mirror(&self) -> Option<&dyn RosterMirror> {
        (!self.is_elsewhere()).then_some(self)
    }
}
