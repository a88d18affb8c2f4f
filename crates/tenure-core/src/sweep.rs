//! The contract of the janitor and the reaper: end what lapsed, release what the ended held, delete orphans; exactly once,
//! whoever sweeps.
//!
//! A pass has three steps. Step 1 ends members whose end time has passed. Step 2 releases holdings of ended tenures,
//! once step 1 has drained and [`BURST`] after the end, so that the brake sees a burst whole. Step 3 deletes the sessions
//! whose grace is over. Any number of sweepers may run; each holding is released, and each orphan deleted, by exactly one
//! of them and reported in one event.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::brake::Brake;
use crate::call::{Limits, ask};
use crate::error::Result;
use crate::event::EventId;
use crate::id::{Group, SessionId, TenureId};
use crate::membership::{EndReason, Holdings};
use crate::session::{Epoch, SessionStore};
use crate::settling::GapCause;
use crate::store::{Backend, Call, check_limit};
use crate::time::StoreTime;

/// How long after its end a tenure's holdings are left alone, so that the brake sees a burst whole.
pub const BURST: Duration = Duration::from_millis(250);
/// How many members or holdings one atomic step touches at most.
pub const BATCH: u32 = 200;

/// How many holdings of one tenure a release looks at: all it may when nobody else waits, and never less than a quarter,
/// so that a huge tenure blocks nobody and a few small ones do not make each other wait.
#[must_use]
pub fn turn_of(limit: u32, waiting: usize) -> u32 {
    let waiting = u32::try_from(waiting).unwrap_or(u32::MAX).clamp(1, 4);
    (limit / waiting).max(1)
}

/// A group that is inside a grace period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Unsettled {
    /// Why: `new`, `silent`, `clock_back`, `data_loss` or `tail_loss`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub cause: GapCause,
    /// Until when everyone has had one full ttl.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub until: StoreTime,
}

/// The state of a group, for the sweeper, for status pages and for the event reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupStatus {
    /// The store's time of this reading.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
    /// Members with a current tenure.
    pub members: u64,
    /// The longest silence of the store that is no gap; tick at least three times as often.
    #[serde(rename = "gap_ms", with = "crate::millis::down")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub gap: Duration,
    /// When the store last resumed serving this group after a gap.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub resumed_at: StoreTime,
    /// Set while inside a grace period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<Unsettled>,
    /// Set while the brake is engaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brake: Option<Brake>,
    /// The earliest time at which a member may have lapsed. The true end may be later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub next_due: Option<StoreTime>,
    /// The earliest time at which holdings may be released (what the brake holds back does not count).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub next_release: Option<StoreTime>,
    /// Ended tenures whose holdings are not all released.
    pub releasing: u64,
    /// Leases that somebody holds; those of ended tenures, too, until they are released or taken over.
    #[serde(default)]
    pub leases: u64,
    /// Sessions.
    #[serde(default)]
    pub sessions: u64,
    /// Sessions without a connection, orphans included.
    #[serde(default)]
    pub disconnected: u64,
    /// The earliest time at which a session may have become an orphan (what the brake holds back does not count). The true
    /// time may be later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub next_reap: Option<StoreTime>,
    /// Providers whose tenure has ended and whom the ledger has not followed yet.
    #[serde(default)]
    pub pending_offline: u64,
    /// The earliest time at which the ledger may follow one of them (what the brake holds back does not count).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub next_offline: Option<StoreTime>,
    /// The newest event.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub last_event: EventId,
    /// Since when every tick has found it empty. Never of a group with a roster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub empty_since: Option<StoreTime>,
}

impl GroupStatus {
    /// Whether it has members or anything else that a sweep works on.
    #[must_use]
    pub fn is_occupied(&self) -> bool {
        self.members + self.releasing + self.leases + self.sessions + self.pending_offline > 0
    }
}

/// Step 1 of a pass: what it did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EndedBatch {
    /// The store's time of the step. A brake that engaged in it is engaged since then.
    pub as_of: StoreTime,
    /// The tenures that lapsed.
    pub ended: Vec<TenureId>,
    /// Whether more may be due: call again.
    pub more: bool,
}

/// Step 2 of a pass: what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseRequest {
    /// Names the pass in the events, so that a lost reply cannot lose the count. Unique per call.
    pub pass: String,
    /// At most this many holdings.
    pub limit: u32,
    /// Lift the brake first. Never overrides a grace period: only ended tenures are released.
    pub force: bool,
}

/// Holdings removed from one ended tenure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Eviction {
    /// Whose.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// How many entries, by registry.
    pub claims: BTreeMap<String, u64>,
    /// How many leases.
    #[serde(default)]
    pub leases: u64,
    /// How many connections of sessions.
    #[serde(default)]
    pub connections: u64,
}

impl Eviction {
    /// Nothing yet, of this tenure.
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

/// Step 2 of a pass: what it did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReleasedBatch {
    /// What was removed. Holdings that had moved to someone else meanwhile are not counted.
    pub evicted: Vec<Eviction>,
    /// Whether more may be releasable now: call again.
    pub more: bool,
    /// Set when the brake holds something back.
    pub braked: Option<Brake>,
}

/// A session that was deleted because its grace was over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reaped {
    /// Which.
    pub session: SessionId,
    /// Its last attach.
    pub epoch: Epoch,
}

/// Step 3 of a pass: what it did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReapedBatch {
    /// The sessions deleted, those first whose grace ended first.
    pub reaped: Vec<Reaped>,
    /// Entries of the index that belonged to no disconnected session; they are gone from it.
    pub skipped: u64,
    /// Whether more may be due: call again.
    pub more: bool,
    /// Set when the brake holds everything back.
    pub braked: Option<Brake>,
}

/// A part of a reconcile: what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReconcileRequest {
    /// Where to go on: the `next` of the part before; opaque.
    pub after: Option<String>,
    /// Look at most at this many entries.
    pub limit: u32,
}

/// A part of a reconcile: what it found, and repaired.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reconciled {
    /// Entries looked at.
    pub looked_at: u64,
    /// What did not fit together, by kind ([`drift`]); empty when everything did.
    pub repaired: BTreeMap<String, u64>,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
}

/// The kinds of drift that a reconcile repairs. None of them comes about by a store's own steps.
pub mod drift {
    /// The index named a session that is not there.
    pub const INDEX_WITHOUT_SESSION: &str = "index_without_session";
    /// The index named a session that has connections.
    pub const INDEX_OF_ACTIVE: &str = "index_of_active";
    /// A session without connections was not in the index; its grace begins now.
    pub const SESSION_WITHOUT_INDEX: &str = "session_without_index";
    /// Connections of a session that is not there.
    pub const CONNECTION_WITHOUT_SESSION: &str = "connection_without_session";
    /// A connection of a tenure that no janitor knows any more.
    pub const GHOST_CONNECTION: &str = "ghost_connection";
    /// A connection that was not among what its tenure holds.
    pub const HOLDING_MISSING: &str = "holding_missing";
    /// A connection among what a tenure holds that its session does not have.
    pub const HOLDING_WITHOUT_CONNECTION: &str = "holding_without_connection";
    /// An alias of a session that is not there, or has another one.
    pub const ALIAS_WITHOUT_SESSION: &str = "alias_without_session";
    /// A session whose alias did not lead to it.
    pub const ALIAS_MISSING: &str = "alias_missing";
    /// A session that the list of all sessions did not have.
    pub const LISTING_MISSING: &str = "listing_missing";
    /// The list of all sessions named one that is not there.
    pub const LISTING_WITHOUT_SESSION: &str = "listing_without_session";
    /// A session whose record is damaged beyond use.
    pub const BROKEN_SESSION: &str = "broken_session";
    /// No drift: a connection that was attached too long ago (`max_age`).
    pub const AGED_CONNECTION: &str = "aged_connection";
    /// A provider's row that could not be read; it is gone until the ledger tells it again.
    pub const BROKEN_PROVIDER: &str = "broken_provider";
    /// A provider that was not where its row and its tenure belong among the available, the busy or the deactivated.
    pub const PROVIDER_MISPLACED: &str = "provider_misplaced";
    /// Something led to a provider that has no row.
    pub const INDEX_WITHOUT_PROVIDER: &str = "index_without_provider";
    /// A row named an ended tenure, and nobody knew that the ledger has to follow.
    pub const OFFLINE_NOT_PENDING: &str = "offline_not_pending";
    /// A tenure was pending that no row names: the ledger has followed, or has another one.
    pub const PENDING_WITHOUT_PROVIDER: &str = "pending_without_provider";
}

/// What a pass would do, or has to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Doomed {
    /// Which tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// Why; `lapsed` also for one that is past its end time but not ended yet.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub reason: EndReason,
    /// What it still holds.
    pub holdings: Holdings,
    /// Whether the brake holds it back.
    pub braked: bool,
}

/// [`SweepSteps::tick`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tick;

/// [`SweepSteps::end_lapsed`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndLapsed {
    /// At most this many.
    pub limit: u32,
}

/// [`SweepSteps::spare`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spare {
    /// At most this many.
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
    /// At most this many.
    pub limit: u32,
}

/// [`SweepSteps::forget_group`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForgetGroup;

/// The single steps of a sweep, for a sweeper that runs in this process.
#[async_trait]
pub trait SweepSteps: SessionStore {
    /// Keeps the cadence: looks for a gap, writes the tick, settles a group whose grace is over, lifts a brake whose
    /// time is over. O(1).
    ///
    /// While one sweeper is at work, a store may answer another one a later `next_due` than the true one: when to come
    /// and see whether it still is. That only saves work; a step that is made all the same does what it always does.
    ///
    /// # Errors
    /// `Unavailable`; then nobody is to be declared dead.
    async fn tick(&self, group: &Group) -> Result<GroupStatus> {
        ask(self, Some(group), Tick, Call::default()).await
    }

    /// Step 1: ends up to `limit` members whose end time has passed, one event each, and forgets records of ended
    /// tenures that are older than 2 × max ttl and hold nothing. O(limit · log members).
    ///
    /// # Errors
    /// `TooLate`, `Unavailable`.
    async fn end_lapsed(&self, group: &Group, limit: u32, call: Call) -> Result<EndedBatch> {
        ask(self, Some(group), EndLapsed { limit }, call).await
    }

    /// Step 1 on behalf of a daemon that refuses beats: when it leaves no member past its end, every ttl starts again
    /// ([`Refusal`](crate::refusal::Refusal) has the bounds). While it answers `more`, that is not done yet.
    ///
    /// # Errors
    /// `TooLate`, `Unavailable`.
    async fn spare(&self, group: &Group, limit: u32, call: Call) -> Result<EndedBatch> {
        ask(self, Some(group), Spare { limit }, call).await
    }

    /// Step 2: releases up to `limit` holdings of ended tenures by compare-and-delete: claims first, then connections, one
    /// event per tenure and call with the counts, reason and pass, and one for each session that has none left; then
    /// leases, one event each, but those of a tenure that was superseded or expelled only after its last deadline.
    /// Tenures take turns, so that a huge one blocks nobody. O(limit).
    ///
    /// # Errors
    /// `TooLate`, `Unavailable`. After an unknown outcome look for events that carry the pass.
    async fn release(&self, group: &Group, request: &ReleaseRequest, call: Call) -> Result<ReleasedBatch> {
        ask(self, Some(group), Release(request.clone()), call).await
    }

    /// Step 3: deletes up to `limit` orphans, each with its data, alias and index entry, one event each with its epoch
    /// and the pass. A session with connections is never deleted, whatever the index says; nothing is while the brake is
    /// engaged. O(limit · (log disconnected + fields)).
    ///
    /// # Errors
    /// `TooLate`, `Unavailable`. After an unknown outcome look for events that carry the pass.
    async fn reap(&self, group: &Group, request: &ReleaseRequest, call: Call) -> Result<ReapedBatch> {
        ask(self, Some(group), Reap(request.clone()), call).await
    }

    /// Looks at a part of all that is kept about sessions, in every direction, and repairs what does not fit together;
    /// also drops connections above the `max_age` of the settings. What would take something from a session waits while
    /// the group is unsettled or braked. One event when anything was repaired. Safe beside traffic. O(limit).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from the part before, `TooLate`, `Unavailable`. Doing it again is safe.
    async fn reconcile(&self, group: &Group, request: &ReconcileRequest, call: Call) -> Result<Reconciled> {
        ask(self, Some(group), Reconcile(request.clone()), call).await
    }

    /// What is due, without doing it: lapsed members and ended tenures with holdings, at most `limit`. O(limit).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn doomed(&self, group: &Group, limit: u32) -> Result<Vec<Doomed>> {
        ask(self, Some(group), ListDoomed { limit }, Call::default()).await
    }

    /// Forgets a group that has been empty for [`forget_after`](crate::store::StoreOptions::forget_after), with all that is
    /// kept of it but for the last number it gave out: in one step, which looks again whether it has no members, holdings,
    /// reservations, records of ended tenures, sessions, targets and roster, and whether it is settled. `true` when it is
    /// gone, also when it was before: then no list names it any more. `false` when it is kept, and then its wait restarts. A
    /// later act makes a new group, whose numbers are higher; a tick and [`end_lapsed`](Self::end_lapsed) do not.
    ///
    /// # Errors
    /// `TooLate`, `Unavailable`. Doing it again is safe.
    async fn forget_group(&self, group: &Group, call: Call) -> Result<bool> {
        ask(self, Some(group), ForgetGroup, call).await
    }
}

impl<S: Backend> SweepSteps for S {}

/// A request for a whole pass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SweepRequest {
    /// Only tell what would go.
    pub dry_run: bool,
    /// Lift the brake.
    pub force: bool,
    /// Also look for drift between sessions and their index, and repair it.
    pub reconcile: bool,
}

/// What a whole pass did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SweepReport {
    /// How many tenures lapsed.
    pub ended: u64,
    /// What was removed, by tenure.
    pub evicted: Vec<Eviction>,
    /// How many orphaned sessions were deleted.
    #[serde(default)]
    pub reaped: u64,
    /// Entries of the index of disconnected sessions that belonged to none.
    #[serde(default)]
    pub skipped: u64,
    /// With `reconcile`: what did not fit together and was repaired, by kind.
    #[serde(default)]
    pub repaired: BTreeMap<String, u64>,
    /// With `dry_run`: what would go, at most 1,000.
    pub doomed: Vec<Doomed>,
    /// With `dry_run`: which sessions would be deleted, at most 1,000.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub orphans: Vec<SessionId>,
    /// Set when the brake holds something back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub braked: Option<Brake>,
    /// When there will be something to release, if that is known and later than now.
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
    /// All registry entries removed.
    #[must_use]
    pub fn evicted_total(&self) -> u64 {
        self.evicted.iter().flat_map(|eviction| eviction.claims.values()).sum()
    }

    /// All leases removed.
    #[must_use]
    pub fn leases_total(&self) -> u64 {
        self.evicted.iter().map(|eviction| eviction.leases).sum()
    }

    /// All connections removed.
    #[must_use]
    pub fn connections_total(&self) -> u64 {
        self.evicted.iter().map(|eviction| eviction.connections).sum()
    }
}

/// Runs one whole pass with single steps. `pass` makes the names of the batches.
///
/// # Errors
/// Those of the steps. What was done before the error stays done and is in the events.
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
        if !batch.more {
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

/// Reconciles all sessions of a group, part by part.
///
/// # Errors
/// Those of the parts. What was repaired before the error stays repaired.
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

/// What an operator's word did to one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settling {
    /// Its grace is over.
    Ended,
    /// There was none.
    Settled,
    /// It continues: it has another cause than the one that was named, or one that must be named.
    Left(GapCause),
}

/// What an operator's word did to a store.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettleReport {
    /// How many groups' graces it ended.
    pub settled: u64,
    /// Groups whose grace continues, with its cause.
    pub left: Vec<Left>,
}

/// A group whose grace continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Left {
    /// Which.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub group: Group,
    /// Why: another cause than the one that was asked for.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub cause: GapCause,
}

impl SettleReport {
    /// Adds the result for a group.
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

/// [`Sweep::sweep`] as a value, for a store that is swept elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// What to do.
    pub request: SweepRequest,
    /// Names the pass in the events.
    pub pass: String,
}

/// [`Sweep::settle`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settle {
    /// Also a grace with this cause.
    pub cause: Option<GapCause>,
}

/// Sweeping, by whoever does it for this store.
#[async_trait]
pub trait Sweep: Backend {
    /// The single steps, when this process is to sweep; `None` when a daemon does.
    fn steps(&self) -> Option<&dyn SweepSteps>;

    /// The state of a group, without changing anything. O(1).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn status(&self, group: &Group) -> Result<GroupStatus> {
        ask(self, Some(group), Status, Call::default()).await
    }

    /// Runs a whole pass now. `pass` names it in the events and must be unique.
    ///
    /// # Errors
    /// Those of the steps.
    async fn sweep(&self, group: &Group, request: &SweepRequest, pass: &str, call: Call) -> Result<SweepReport> {
        if let Some(steps) = self.steps() {
            return run_pass(steps, group, request, pass, call).await;
        }
        let (request, pass) = (request.clone(), pass.to_owned());
        ask(self, Some(group), Pass { request, pass }, call).await
    }

    /// Takes an operator's word that no lease was held when the grace of a group began, or of every group: ends the graces
    /// whose cause is `new`, or `cause` where that is named, so that leases are granted at once. For the whole store and
    /// without a cause it holds for groups that are made later in the same wait, too, except in a cluster. An event of
    /// each group tells.
    ///
    /// # Errors
    /// `Unavailable`, `TooLate`. Groups that were settled before the error stay settled.
    async fn settle(&self, group: Option<&Group>, cause: Option<GapCause>, call: Call) -> Result<SettleReport> {
        ask(self, group, Settle { cause }, call).await
    }
}

impl<S: Backend> Sweep for S {
    fn steps(&self) -> Option<&dyn SweepSteps> {
        (!self.is_elsewhere()).then_some(self)
    }
}
