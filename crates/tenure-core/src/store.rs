//! The `Store` trait: the sum of one trait per noun, with paging, call options and store options.

pub mod middleware;

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::brake::BrakeSettings;
use crate::call::{Op, Reply, StoreRequest, send};
use crate::error::{Error, Result};
use crate::event::EventLog;
use crate::id::Group;
use crate::lease::LeaseStore;
use crate::membership::MembershipStore;
use crate::pulse::{BeatPulse, DueGroups, ListDue, Pulsed};
use crate::registry::RegistryStore;
use crate::roster::RosterMirror;
use crate::session::{SessionSettings, SessionStore};
use crate::sweep::{BATCH, Sweep};
use crate::target::TargetStore;
use crate::time::StoreTime;
use crate::timing::DEFAULT_MAX_TTL;

/// The options of one mutating call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Call {
    /// The store time after which the call must not take effect; the atomic step itself checks it. A networked store
    /// adds its own from its request timeout and uses the earlier one.
    pub not_after: Option<StoreTime>,
}

impl Call {
    /// A call with a not-after.
    #[must_use]
    pub fn not_after(at: StoreTime) -> Self {
        Self { not_after: Some(at) }
    }

    /// Refuses a call that comes too late.
    ///
    /// # Errors
    /// `TooLate`.
    pub(crate) fn check(self, now: StoreTime) -> Result<()> {
        match self.not_after.is_some_and(|limit| now > limit) {
            true => Err(Error::too_late()),
            false => Ok(()),
        }
    }
}

/// The maximum page size.
pub const MAX_PAGE: u32 = 1_000;
/// The default page size.
pub const DEFAULT_PAGE: u32 = 100;

/// The page to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// The `next` of the previous page; opaque.
    pub after: Option<String>,
    /// The maximum number of items, 1 to 1,000.
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
    /// A page request within the limits.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000.
    pub fn new(after: Option<String>, limit: u32) -> Result<Self> {
        let page = Self { after, limit };
        page.check().map(|()| page)
    }

    /// Rejects a limit outside 1..=1000.
    ///
    /// # Errors
    /// `Invalid`, with the number.
    pub fn check(&self) -> Result<()> {
        check_limit(self.limit).map(drop)
    }
}

/// Rejects a page size outside 1..=1000.
///
/// # Errors
/// `Invalid`, with the number.
pub fn check_limit(limit: u32) -> Result<u32> {
    if limit == 0 || limit > MAX_PAGE {
        return Err(Error::invalid(format!(
            "limit {limit} is out of range: use 1 to {MAX_PAGE}"
        )));
    }
    Ok(limit)
}

/// The error for a cursor that is not from the previous page.
#[must_use]
pub fn bad_cursor(cursor: &str) -> Error {
    let shown: String = cursor.chars().take(64).collect();
    Error::invalid(format!(
        "invalid cursor {shown:?}; pass the `next` of the previous page unchanged"
    ))
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items, at most the limit.
    pub items: Vec<T>,
    /// The cursor of the next page; `None` at the end. A page may be empty and still have a next one.
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

/// The configuration of a store. All processes that share the store must use the same values.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreOptions {
    /// Joins above this ttl are rejected, and no lease is granted for this long after a data loss. A longer value
    /// allows slower members and lengthens that wait.
    pub max_ttl: Duration,
    /// The brake.
    pub brake: BrakeSettings,
    /// The number of events kept per group.
    pub events_max: u64,
    /// The approximate size of a group's events, in bytes; the oldest are dropped first.
    pub events_bytes: u64,
    /// Whether `evicted` events list the removed keys. `why KEY` needs them; they take space in the event log.
    pub event_keys: bool,
    /// Sessions.
    pub sessions: SessionSettings,
    /// How long a group must be empty before it is forgotten; at least twice `max_ttl`.
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

/// Whether the store answers, from its recent calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Health {
    /// The last calls succeeded.
    Up,
    /// The store does not answer.
    Down {
        /// The last error.
        reason: String,
    },
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// As expected.
    Ok,
    /// Works, with a risk.
    Warning,
    /// Does not work.
    Error,
}

/// A finding of the doctor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Finding {
    /// The checked item, in a word or two.
    pub check: String,
    /// `ok`, `warning` or `error`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub severity: Severity,
    /// The result, and what to do.
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

/// The group that a store ticks to check that it accepts writes; a `.` and a number after it name one for each node.
/// These groups have no members.
pub const PROBE_GROUP: &str = "tenure.readyz";

/// Whether a group exists only for [`Store::probe`]. Listings omit it.
#[must_use]
pub fn is_probe(group: &Group) -> bool {
    let rest = group.as_str().strip_prefix(PROBE_GROUP);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The reply to a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// The store time of the reply.
    pub as_of: StoreTime,
    /// The nodes that accept no writes, each with the reason. Groups on the other nodes are served.
    pub away: Vec<String>,
}

/// The trait a store implements: one method serves every call; the others describe the store.
///
/// Every `Backend` is a [`Store`] with the typed methods of all nouns.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Serves a call that is within its limits and has at most [`part`](Self::part) items. A store that decides itself
    /// implements [`Serve`](crate::call::Serve) for each call and dispatches with
    /// [`serve_all`](crate::call::serve_all).
    ///
    /// # Errors
    /// Those of the call. [`Outcome::Unchanged`](crate::error::Outcome) means nothing happened.
    async fn call(&self, request: StoreRequest) -> Result<Reply>;

    /// The maximum ttl; longer joins are rejected before they are sent.
    fn max_ttl(&self) -> Duration;

    /// The maximum number of items per step of a call.
    fn part(&self, _op: &Op) -> usize {
        BATCH as usize
    }

    /// Whether the store is a remote daemon, which sweeps and has its own rosters and ledger.
    fn is_remote(&self) -> bool {
        false
    }

    /// The URL of the store without secrets, for display.
    fn place(&self) -> String;

    /// Whether recent calls succeeded. No I/O.
    fn health(&self) -> Health;

    /// The time-out of one step. A step that exceeds it returns an error with its known outcome. A step is an `end`, a
    /// read of one member, or a call with at most [`BATCH`] beats, claims or leases. `None` for a store without a
    /// time-out; its callers set one ([`Timeout`](crate::timeout::Timeout)). No I/O.
    fn answers_within(&self) -> Option<Duration> {
        None
    }

    /// Identifies the data of the store; drawn when the data begins, and lost with it. `None` for a store that one process
    /// owns and that keeps no identity.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn identity(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// The name of the store's node that has a group; `None` for a store of one node, or if the node is not known. No
    /// I/O.
    fn node_of(&self, _group: &Group) -> Option<String> {
        None
    }

    /// Waits until the store can never serve again because its disk cannot be trusted, and returns the reason. A
    /// process dedicated to the store should then exit, so that the next one reads the disk afresh. Most stores wait
    /// forever.
    async fn until_broken(&self) -> Error {
        std::future::pending().await
    }

    /// Checks version, settings and permissions. Never fails: a check that cannot run is a finding.
    async fn examine(&self) -> Vec<Finding>;

    /// Closes connections, files and threads. Later calls fail with `Unavailable`.
    async fn close(&self);
}

/// [`Store::now`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now;

/// [`Store::probe`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// How long to wait for the nodes.
    pub patience: Duration,
}

/// [`Store::groups`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListGroups;

/// [`Store::find_groups`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FindGroups;

/// Every operation of a store. Connect to one by URL with the `tenure` crate.
#[async_trait]
pub trait Store: MembershipStore + RegistryStore + LeaseStore + TargetStore + SessionStore + EventLog + Sweep {
    /// The mirror of rosters; `None` for a remote daemon.
    fn mirror(&self) -> Option<&dyn RosterMirror>;

    /// Reads the store's clock. The cheapest round trip.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn now(&self) -> Result<StoreTime> {
        send(self, None, Now, Call::default()).await
    }

    /// Checks that the store accepts writes, by a write that affects no group. A store of several nodes checks each of
    /// them for at most `patience`; the call fails only if none accepts writes.
    ///
    /// # Errors
    /// `Unavailable`, `Denied`, and any other error of a write.
    async fn probe(&self, patience: Duration) -> Result<Probed> {
        send(self, None, Probe { patience }, Call::default()).await
    }

    /// The groups of the store. May include one that is empty by now. O(groups).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn groups(&self) -> Result<Vec<Group>> {
        send(self, None, ListGroups, Call::default()).await
    }

    /// Beats the pulse of the store: the proof that it took beats. Only a process that takes beats calls this, about every
    /// [`PULSE_EVERY`](crate::settling::PULSE_EVERY), and on the path of a beat: never a sweep.
    ///
    /// # Errors
    /// Those of a beat; `Unsupported` for a remote daemon.
    async fn beat_pulse(&self, beat: BeatPulse) -> Result<Pulsed> {
        send(self, None, beat, Call::default()).await
    }

    /// The groups in which something is due within `ahead`, at most `limit`. O(groups named).
    ///
    /// # Errors
    /// `Unavailable`; `Unsupported` for a remote daemon.
    async fn due(&self, ahead: Duration, limit: u32) -> Result<DueGroups> {
        send(self, None, ListDue { ahead, limit }, Call::default()).await
    }

    /// Searches a part of the stored data for groups missing from [`groups`](Store::groups), and adds them again.
    /// `true` means that more remains: call again after a pause. A store whose list cannot be lost finds nothing.
    ///
    /// # Errors
    /// `Unavailable`, after which the search restarts; `Denied` if the store's user may not search.
    async fn find_groups(&self) -> Result<bool> {
        send(self, None, FindGroups, Call::default()).await
    }
}

impl<S: Backend> Store for S {
    fn mirror(&self) -> Option<&dyn RosterMirror> {
        (!self.is_remote()).then_some(self)
    }
}
