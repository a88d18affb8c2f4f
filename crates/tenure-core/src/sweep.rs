//! The contract of the janitor and the reaper: end lapsed members, release the holdings of ended tenures, and delete
//! orphans, exactly once with any number of sweepers.
//!
//! A pass has three steps. Step 1 ends members past their end time. Step 2 releases the holdings of ended tenures, once
//! step 1 has drained and [`BURST`] after the end, so that the brake sees a burst whole. Step 3 deletes the sessions
//! whose grace is over. Exactly one sweeper releases each holding and deletes each orphan, and one event reports it.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::brake::Brake;
use crate::call::{Limits, send};
use crate::error::Result;
use crate::event::EventId;
use crate::id::{Group, NodeId, SessionId, TenureId};
use crate::membership::{EndReason, Holdings};
use crate::session::{Epoch, SessionStore};
use crate::settling::GapCause;
use crate::store::{Backend, Call, check_limit};
use crate::time::StoreTime;

/// The minimum time between the end of a tenure and the release of its holdings, so that the brake sees a burst whole.
pub const BURST: Duration = Duration::from_millis(250);
/// The maximum number of members or holdings per atomic step.
pub const BATCH: u32 = 200;
/// How far ahead [`SweepSteps::end_lapsed`] updates the lazy index.
pub const LOOK_AHEAD: Duration = Duration::from_millis(50);

/// The number of holdings of one tenure that a release step checks: `limit` if no other tenure waits, and at least a
/// quarter of it, so that neither a huge tenure nor many small ones delay the others.
#[must_use]
pub fn turn_of(limit: u32, waiting: usize) -> u32 {
    let waiting = u32::try_from(waiting).unwrap_or(u32::MAX).clamp(1, 4);
    (limit / waiting).max(1)
}

/// A group within a grace period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Unsettled {
    /// The cause: `new`, `silent`, `clock_back`, `data_loss` or `tail_loss`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub cause: GapCause,
    /// The end of the grace; by then every member has had one full ttl.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub until: StoreTime,
}

/// The state of a group, for sweepers, status pages and event readers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupStatus {
    /// The store time of this reading.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
    /// Members with a current tenure.
    pub members: u64,
    /// Whether the store has a pulse. A group without one goes by its own tick, which a sweeper must keep up.
    #[serde(skip)]
    pub has_pulse: bool,
    /// The longest silence of the store that is not a gap.
    #[serde(rename = "gap_ms", with = "crate::millis::down")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub gap: Duration,
    /// When the store last resumed serving this group after a gap.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub resumed_at: StoreTime,
    /// Set during a grace period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<Unsettled>,
    /// Set while the brake is engaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brake: Option<Brake>,
    /// The earliest time at which a member may have lapsed. The true time may be later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub next_due: Option<StoreTime>,
    /// The earliest time at which holdings may be released, without those the brake holds back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub next_release: Option<StoreTime>,
    /// Ended tenures with unreleased holdings.
    pub releasing: u64,
    /// Held leases, including those of ended tenures until they are released or taken over.
    #[serde(default)]
    pub leases: u64,
    /// Sessions.
    #[serde(default)]
    pub sessions: u64,
    /// Sessions without a connection, orphans included.
    #[serde(default)]
    pub disconnected: u64,
    /// The earliest time at which a session may have become an orphan, without those the brake holds back. The true
    /// time may be later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub next_reap: Option<StoreTime>,
    /// Ended tenures of providers that the ledger has not applied yet.
    #[serde(default)]
    pub pending_offline: u64,
    /// The earliest time at which the ledger may apply one of them, without those the brake holds back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub next_offline: Option<StoreTime>,
    /// The earliest time at which a lease with waiters may become free. The brake does not hold it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub next_wake: Option<StoreTime>,
    /// The newest event.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub last_event: EventId,
    /// The time since which every tick has found the group empty. Never set for a group with a roster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub empty_since: Option<StoreTime>,
}

impl GroupStatus {
    /// Whether the group has members or anything else to sweep.
    #[must_use]
    pub fn is_occupied(&self) -> bool {
        self.members + self.releasing + self.leases + self.sessions + self.pending_offline > 0
    }
}

/// The result of step 1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EndedBatch {
    /// The store time of the step. A brake that engaged in this step has the same `since`.
    pub as_of: StoreTime,
    /// The tenures that lapsed.
    pub ended: Vec<TenureId>,
    /// When the next member may lapse.
    pub next_due: Option<StoreTime>,
}

impl EndedBatch {
    /// Whether more may be due; call again.
    #[must_use]
    pub fn more(&self) -> bool {
        self.next_due.is_some_and(|at| at <= self.as_of)
    }
}

/// The parameters of steps 2 and 3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseRequest {
    /// The id of the pass in the events, so that the counts of a lost reply can be found. Unique per call.
    pub pass: String,
    /// The maximum number of holdings.
    pub limit: u32,
    /// Lift the brake first. Does not override a grace period: only ended tenures are released.
    pub force: bool,
}

/// The holdings removed from one ended tenure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Eviction {
    /// The tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The number of claims, by registry.
    pub claims: BTreeMap<String, u64>,
    /// The number of leases.
    #[serde(default)]
    pub leases: u64,
    /// The number of session connections.
    #[serde(default)]
    pub connections: u64,
}

impl Eviction {
    /// An empty eviction of this tenure.
    #[must_use]
    pub fn none(tenure: TenureId) -> Self {
        Self {
            tenure,
            claims: BTreeMap::new(),
            leases: 0,
            connections: 0,
        }
    }
}

/// The result of step 2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReleasedBatch {
    /// The removed holdings. A holding that had moved to another tenure is not counted.
    pub evicted: Vec<Eviction>,
    /// Whether more may be releasable; call again.
    pub more: bool,
    /// Set if the brake holds something back.
    pub braked: Option<Brake>,
}

/// A session deleted because its grace was over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reaped {
    /// The session.
    pub session: SessionId,
    /// The epoch of its last attach.
    pub epoch: Epoch,
}

/// The result of step 3.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReapedBatch {
    /// The deleted sessions, by the end of their grace.
    pub reaped: Vec<Reaped>,
    /// Removed index entries without a disconnected session.
    pub skipped: u64,
    /// Whether more may be due; call again.
    pub more: bool,
    /// Set if the brake holds everything back.
    pub braked: Option<Brake>,
}

/// The parameters of a part of a reconcile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReconcileRequest {
    /// The `next` of the previous part; opaque.
    pub after: Option<String>,
    /// The maximum number of entries to check.
    pub limit: u32,
}

/// The result of a part of a reconcile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reconciled {
    /// The number of checked entries.
    pub looked_at: u64,
    /// The repaired inconsistencies, by kind ([`drift`]).
    pub repaired: BTreeMap<String, u64>,
    /// The cursor of the next part; `None` at the end.
    pub next: Option<String>,
}

/// The kinds of drift that a reconcile repairs. A store's own steps cause none of them.
pub mod drift {
    /// The index names a missing session.
    pub const INDEX_WITHOUT_SESSION: &str = "index_without_session";
    /// The index names a session with connections.
    pub const INDEX_OF_ACTIVE: &str = "index_of_active";
    /// The index lacks a session without connections; its grace begins with the repair.
    pub const SESSION_WITHOUT_INDEX: &str = "session_without_index";
    /// Connections of a missing session.
    pub const CONNECTION_WITHOUT_SESSION: &str = "connection_without_session";
    /// A connection of a tenure that no longer exists.
    pub const GHOST_CONNECTION: &str = "ghost_connection";
    /// A connection missing from the holdings of its tenure.
    pub const HOLDING_MISSING: &str = "holding_missing";
    /// A holding of a tenure that its session lacks.
    pub const HOLDING_WITHOUT_CONNECTION: &str = "holding_without_connection";
    /// An alias of a session that is missing or has another alias.
    pub const ALIAS_WITHOUT_SESSION: &str = "alias_without_session";
    /// A session whose alias does not resolve to it.
    pub const ALIAS_MISSING: &str = "alias_missing";
    /// A session missing from the list of sessions.
    pub const LISTING_MISSING: &str = "listing_missing";
    /// The list of sessions names a missing session.
    pub const LISTING_WITHOUT_SESSION: &str = "listing_without_session";
    /// A session with an unreadable record.
    pub const BROKEN_SESSION: &str = "broken_session";
    /// Not drift: a connection above the `max_age`.
    pub const AGED_CONNECTION: &str = "aged_connection";
    /// A provider with an unreadable row; the row is removed until the ledger sends it again.
    pub const BROKEN_PROVIDER: &str = "broken_provider";
    /// A provider in the wrong index of the available, busy or deactivated ones.
    pub const PROVIDER_MISPLACED: &str = "provider_misplaced";
    /// An index entry of a provider without a row.
    pub const INDEX_WITHOUT_PROVIDER: &str = "index_without_provider";
    /// A row that names an ended tenure which is not among the pending ones.
    pub const OFFLINE_NOT_PENDING: &str = "offline_not_pending";
    /// A pending tenure that no row names: the ledger has applied it, or has another one.
    pub const PENDING_WITHOUT_PROVIDER: &str = "pending_without_provider";
}

/// An ended or lapsed tenure that a pass will release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Doomed {
    /// The tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// The reason; `lapsed` also for a tenure past its end time that has not been ended.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub reason: EndReason,
    /// Its remaining holdings.
    pub holdings: Holdings,
    /// Whether the brake holds it back.
    pub braked: bool,
}

/// [`SweepSteps::tick`] as a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tick {
    /// The process whose waiting requests this tick confirms, on a shared store.
    pub node: Option<NodeId>,
}

/// [`SweepSteps::end_lapsed`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndLapsed {
    /// The maximum number of members.
    pub limit: u32,
}

/// [`SweepSteps::spare`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spare {
    /// The maximum number of members.
    pub limit: u32,
}

/// [`SweepSteps::release`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release(pub ReleaseRequest);

/// [`SweepSteps::reap`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reap(pub ReleaseRequest);

/// [`SweepSteps::reconcile`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconcile(pub ReconcileRequest);

impl Limits for Reconcile {
    fn check(&self, _: Duration) -> Result<()> {
        check_limit(self.0.limit).map(drop)
    }
}

/// [`SweepSteps::doomed`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListDoomed {
    /// The maximum number of tenures.
    pub limit: u32,
}

/// [`SweepSteps::forget_group`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForgetGroup;

/// The single steps of a sweep, for a sweeper in this process.
#[async_trait]
pub trait SweepSteps: SessionStore {
    /// Begins a visit: looks for a gap, settles a group whose grace is over, lifts a brake whose time is over, and notes
    /// since when the group is empty. O(1).
    ///
    /// # Errors
    /// `Unavailable`; no member may then be considered dead.
    async fn tick(&self, group: &Group) -> Result<GroupStatus> {
        send(self, Some(group), Tick::default(), Call::default()).await
    }

    /// [`SweepSteps::tick`], which also confirms the waiting requests of this process. A shared store passes over those
    /// of a process that has not ticked for [`NODE_SILENCE`](crate::lease::NODE_SILENCE). O(1).
    ///
    /// # Errors
    /// As [`SweepSteps::tick`].
    async fn tick_of(&self, group: &Group, node: Option<&NodeId>) -> Result<GroupStatus> {
        let node = node.cloned();
        send(self, Some(group), Tick { node }, Call::default()).await
    }

    /// Step 1: looks at up to `limit` members that may be past their end time or may be within [`LOOK_AHEAD`], and ends
    /// those that are, with one event each. After that, the next due time is either the end of a member or not within
    /// [`LOOK_AHEAD`], so a group in which entries of the index come due all the time needs few steps, and each end is
    /// found at its time. Also forgets records of ended tenures that are older than 2 × max ttl and have no holdings.
    /// O(limit · log members).
    ///
    /// # Errors
    /// `TooLate`, `Unavailable`.
    async fn end_lapsed(&self, group: &Group, limit: u32, call: Call) -> Result<EndedBatch> {
        send(self, Some(group), EndLapsed { limit }, call).await
    }

    /// Step 1 for a daemon that rejects beats: once no member is past its end, every ttl restarts
    /// ([`Refusal`](crate::refusal::Refusal) has the bounds). While the reply says `more`, the restart is still
    /// pending.
    ///
    /// # Errors
    /// `TooLate`, `Unavailable`.
    async fn spare(&self, group: &Group, limit: u32, call: Call) -> Result<EndedBatch> {
        send(self, Some(group), Spare { limit }, call).await
    }

    /// Step 2: releases up to `limit` holdings of ended tenures by compare-and-delete. Claims come first, then
    /// connections, with one event per tenure and call (counts, reason and pass) and one for each session that loses
    /// its last connection. Leases follow, one event each; those of a superseded or expelled tenure only after its last
    /// deadline. Tenures take turns, so a huge one does not delay the others. O(limit).
    ///
    /// # Errors
    /// `TooLate`, `Unavailable`. After an unknown outcome, look for events with the pass.
    async fn release(&self, group: &Group, request: &ReleaseRequest, call: Call) -> Result<ReleasedBatch> {
        send(self, Some(group), Release(request.clone()), call).await
    }

    /// Step 3: deletes up to `limit` orphans, each with its data, alias and index entry, and writes one event each with
    /// epoch and pass. Never deletes a session with connections, whatever the index says, and deletes nothing while the
    /// brake is engaged. O(limit · (log disconnected + fields)).
    ///
    /// # Errors
    /// `TooLate`, `Unavailable`. After an unknown outcome, look for events with the pass.
    async fn reap(&self, group: &Group, request: &ReleaseRequest, call: Call) -> Result<ReapedBatch> {
        send(self, Some(group), Reap(request.clone()), call).await
    }

    /// Checks a part of the session records and indexes in every direction and repairs inconsistencies; also drops
    /// connections above the configured `max_age`. A repair that removes something from a session waits while the group
    /// is unsettled or braked. Writes one event if anything was repaired. Safe with concurrent traffic. O(limit).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from the previous part, `TooLate`, `Unavailable`. A retry is safe.
    async fn reconcile(&self, group: &Group, request: &ReconcileRequest, call: Call) -> Result<Reconciled> {
        send(self, Some(group), Reconcile(request.clone()), call).await
    }

    /// Lists lapsed members and ended tenures with holdings, at most `limit`, without releasing them. O(limit).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn doomed(&self, group: &Group, limit: u32) -> Result<Vec<Doomed>> {
        send(self, Some(group), ListDoomed { limit }, Call::default()).await
    }

    /// Forgets a group that has been empty for [`forget_after`](crate::store::StoreOptions::forget_after), except for
    /// the last number it issued. One step checks again that the group is settled and has no members, holdings,
    /// reservations, records of ended tenures, sessions, targets or roster. `true` if the group is gone, now or before;
    /// no list names it then. `false` if it is kept; its wait restarts. A later mutation creates a new group with
    /// higher numbers; a tick and [`end_lapsed`](Self::end_lapsed) do not.
    ///
    /// # Errors
    /// `TooLate`, `Unavailable`. A retry is safe.
    async fn forget_group(&self, group: &Group, call: Call) -> Result<bool> {
        send(self, Some(group), ForgetGroup, call).await
    }
}

impl<S: Backend> SweepSteps for S {}

/// The parameters of a whole pass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SweepRequest {
    /// Only report what a pass would remove.
    pub dry_run: bool,
    /// Lift the brake.
    pub force: bool,
    /// Also find and repair drift between sessions and their index.
    pub reconcile: bool,
}

/// The result of a whole pass.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SweepReport {
    /// The number of lapsed tenures.
    pub ended: u64,
    /// The removed holdings, by tenure.
    pub evicted: Vec<Eviction>,
    /// The number of deleted orphans.
    #[serde(default)]
    pub reaped: u64,
    /// Removed index entries without a disconnected session.
    #[serde(default)]
    pub skipped: u64,
    /// With `reconcile`: the repaired inconsistencies, by kind.
    #[serde(default)]
    pub repaired: BTreeMap<String, u64>,
    /// With `dry_run`: the tenures to release, at most 1,000.
    pub doomed: Vec<Doomed>,
    /// With `dry_run`: the sessions to delete, at most 1,000.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub orphans: Vec<SessionId>,
    /// Set if the brake holds something back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub braked: Option<Brake>,
    /// The time until holdings can be released, if known and in the future.
    #[serde(
        rename = "next_release_in_ms",
        with = "crate::millis::up",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub next_release_in: Option<Duration>,
}

impl SweepReport {
    /// The number of removed claims.
    #[must_use]
    pub fn evicted_total(&self) -> u64 {
        self.evicted.iter().flat_map(|eviction| eviction.claims.values()).sum()
    }

    /// The number of removed leases.
    #[must_use]
    pub fn leases_total(&self) -> u64 {
        self.evicted.iter().map(|eviction| eviction.leases).sum()
    }

    /// The number of removed connections.
    #[must_use]
    pub fn connections_total(&self) -> u64 {
        self.evicted.iter().map(|eviction| eviction.connections).sum()
    }
}

/// Runs one whole pass with single steps. The ids of the batches derive from `pass`.
///
/// # Errors
/// Those of the steps. Earlier steps remain applied and are in the events.
pub async fn run_pass(
    steps: &dyn SweepSteps,
    group: &Group,
    request: &SweepRequest,
    pass: &str,
    call: Call,
) -> Result<SweepReport> {
    let mut report = SweepReport::default();
    if request.dry_run {
        report.doomed = steps.doomed(group, 1_000).await?;
        let orphans = steps.orphans(group, Duration::ZERO, 1_000).await?;
        report.orphans = orphans.orphans.into_iter().map(|orphan| orphan.session).collect();
        report.skipped = orphans.skipped;
        return Ok(report);
    }
    loop {
        let batch = steps.end_lapsed(group, BATCH, call).await?;
        report.ended += batch.ended.len() as u64;
        if !batch.more() {
            break;
        }
    }
    release_all(steps, group, request.force, pass, call, &mut report).await?;
    reap_all(steps, group, pass, call, &mut report).await?;
    if request.reconcile {
        reconcile_all(steps, group, call, &mut report).await?;
    }
    let status = steps.tick(group).await?;
    report.next_release_in = status
        .next_release
        .map(|at| at.since(status.as_of))
        .filter(|wait| !wait.is_zero());
    Ok(report)
}

async fn release_all(
    steps: &dyn SweepSteps,
    group: &Group,
    force: bool,
    pass: &str,
    call: Call,
    report: &mut SweepReport,
) -> Result<()> {
    let mut evicted: BTreeMap<TenureId, Eviction> = BTreeMap::new();
    for number in 0u64.. {
        let release = ReleaseRequest {
            pass: format!("{pass}.{number}"),
            limit: BATCH,
            force: force && number == 0,
        };
        let batch = steps.release(group, &release, call).await?;
        for eviction in batch.evicted {
            let sum = evicted
                .entry(eviction.tenure.clone())
                .or_insert_with(|| Eviction::none(eviction.tenure));
            sum.leases += eviction.leases;
            sum.connections += eviction.connections;
            for (registry, count) in eviction.claims {
                *sum.claims.entry(registry).or_default() += count;
            }
        }
        report.braked = batch.braked;
        if !batch.more {
            break;
        }
    }
    report.evicted = evicted.into_values().collect();
    Ok(())
}

async fn reap_all(
    steps: &dyn SweepSteps,
    group: &Group,
    pass: &str,
    call: Call,
    report: &mut SweepReport,
) -> Result<()> {
    for number in 0u64.. {
        let reap = ReleaseRequest {
            pass: format!("{pass}.reap.{number}"),
            limit: BATCH,
            force: false,
        };
        let batch = steps.reap(group, &reap, call).await?;
        report.reaped += batch.reaped.len() as u64;
        report.skipped += batch.skipped;
        if !batch.more {
            break;
        }
    }
    Ok(())
}

/// Reconciles all sessions of a group, one part at a time.
///
/// # Errors
/// Those of the parts. Earlier repairs remain.
pub async fn reconcile_all(steps: &dyn SweepSteps, group: &Group, call: Call, report: &mut SweepReport) -> Result<()> {
    let mut after = None;
    loop {
        let request = ReconcileRequest { after, limit: BATCH };
        let part = steps.reconcile(group, &request, call).await?;
        for (kind, count) in part.repaired {
            *report.repaired.entry(kind).or_default() += count;
        }
        after = part.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// The effect of a settle command on one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settling {
    /// Its grace has ended.
    Ended,
    /// It was already settled.
    Settled,
    /// Its grace continues: the cause differs from the named one, or must be named.
    Left(GapCause),
}

/// The result of a settle command.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettleReport {
    /// The number of groups whose grace has ended.
    pub settled: u64,
    /// The groups whose grace continues, with its cause.
    pub left: Vec<Left>,
}

/// A group whose grace continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Left {
    /// The group.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub group: Group,
    /// The cause of its grace.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub cause: GapCause,
}

impl SettleReport {
    /// Adds the effect on a group.
    pub fn add(&mut self, group: Group, settling: Settling) {
        match settling {
            Settling::Ended => self.settled += 1,
            Settling::Settled => {}
            Settling::Left(cause) => self.left.push(Left { group, cause }),
        }
    }
}

/// [`Sweep::status`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status;

/// [`Sweep::sweep`] as a value, for a remote daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// The parameters.
    pub request: SweepRequest,
    /// The id of the pass in the events.
    pub pass: String,
}

/// [`Sweep::settle`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settle {
    /// Also end a grace with this cause.
    pub cause: Option<GapCause>,
}

/// Sweeps of a store, in this process or by a daemon.
#[async_trait]
pub trait Sweep: Backend {
    /// The single steps if this process sweeps; `None` if a daemon does.
    fn steps(&self) -> Option<&dyn SweepSteps>;

    /// Reads the state of a group. O(1).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn status(&self, group: &Group) -> Result<GroupStatus> {
        send(self, Some(group), Status, Call::default()).await
    }

    /// Runs a whole pass. `pass` is its id in the events and must be unique.
    ///
    /// # Errors
    /// Those of the steps.
    async fn sweep(&self, group: &Group, request: &SweepRequest, pass: &str, call: Call) -> Result<SweepReport> {
        if let Some(steps) = self.steps() {
            return run_pass(steps, group, request, pass, call).await;
        }
        let (request, pass) = (request.clone(), pass.to_owned());
        send(self, Some(group), Pass { request, pass }, call).await
    }

    /// Applies an operator's statement that no lease was held when the grace of a group, or of every group, began. Ends
    /// graces with the cause `new`, or also with the named `cause`, so that leases are granted immediately. For the
    /// whole store and without a cause, it also covers groups created later in the same wait, except in a cluster. Each
    /// group writes an event.
    ///
    /// # Errors
    /// `Unavailable`, `TooLate`. Groups settled before the error remain settled.
    async fn settle(&self, group: Option<&Group>, cause: Option<GapCause>, call: Call) -> Result<SettleReport> {
        send(self, group, Settle { cause }, call).await
    }
}

impl<S: Backend> Sweep for S {
    fn steps(&self) -> Option<&dyn SweepSteps> {
        (!self.is_remote()).then_some(self)
    }
}
