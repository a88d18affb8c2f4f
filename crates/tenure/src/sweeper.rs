//! The sweeps: the janitor ends lapsed tenures and releases their holdings, the reaper deletes orphaned sessions, and
//! the reconcile repairs session indexes. They run in every process that uses a store without a daemon.
//!
//! No leader election is needed. Any number of sweepers may run on one store: each step is atomic there, and each
//! holding is released by exactly one of them. A sweeper visits the groups in which something is due: it asks the store
//! for those of the next seconds, sleeps until the earliest, and keeps its counts exact when a reply is lost, by reading
//! the events of its own pass. A late visit is late, and proves nothing about the store. A store error ends the pass; no
//! member is marked dead.

mod context;
mod discovery;
mod journal;
mod queues;
mod reaper;
mod reconcile;
mod schedule;
mod visit;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::{Clock, Mono, jitter};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::Group;
use tenure_core::pulse::VISITS_APART;
use tenure_core::store::Store;

use tenure_core::time::StoreTime;
use tokio::sync::OwnedMutexGuard;

use crate::burst::BurstLog;
use crate::lease::WaitingGroups;
use crate::loops::{FLOOR, LoopBody, LoopSettings, Loops, Turn, Waker};
use crate::meters;
use discovery::Discovery;
use queues::{Sweeping, VisitQueues};
use reaper::{ReapWork, Reaper};
use reconcile::{ReconcileWork, Reconciler};
use schedule::Schedule;
use visit::{Visit, Visited, Work};

/// The name of the janitor's loop.
pub const JANITOR: &str = "janitor";
/// The name of the reaper's loop.
pub const REAPER: &str = "reaper";
/// The name of the reconcile's loop.
pub const RECONCILE: &str = "reconcile";

/// In what time all groups are visited when the index of due groups was lost.
const VISIT_ALL_WITHIN: Duration = Duration::from_secs(4);
/// The longest time between two turns of the janitor.
const TURN_AT_LEAST: Duration = Duration::from_secs(2);

/// Settings of the sweeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweeperSettings {
    /// The longest time between two passes over a group that has members or work. Due times cause more frequent passes.
    pub interval: Duration,
    /// The longest time between two checks for sessions whose grace is over. Ending graces cause more frequent checks.
    pub reap_interval: Duration,
    /// How often all sessions are compared with their index. The first run starts at a random point of the interval.
    pub reconcile_interval: Duration,
    /// How often the groups of a store without a complete index of due groups are listed. Shorter finds groups of other
    /// processes sooner. Others are listed a twentieth as often.
    pub discover: Duration,
    /// How long a group must be empty before the store is asked to forget it.
    pub forget_after: Duration,
    /// Time-out of a step, after which its outcome counts as unknown.
    pub give_up: Duration,
}

impl Default for SweeperSettings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(60),
            reap_interval: Duration::from_secs(30),
            reconcile_interval: Duration::from_secs(24 * 3600),
            discover: Duration::from_millis(1_500),
            forget_after: Duration::from_secs(24 * 3600),
            give_up: Duration::from_secs(2),
        }
    }
}

impl SweeperSettings {
    fn check(&self) -> Result<()> {
        let durations = [
            ("interval", self.interval),
            ("reap_interval", self.reap_interval),
            ("reconcile_interval", self.reconcile_interval),
            ("discover", self.discover),
            ("give_up", self.give_up),
        ];
        if let Some((name, given)) = durations.into_iter().find(|(_, given)| *given < FLOOR) {
            let message = format!("the setting {name} of the sweeps is {given:?}; it must be at least {FLOOR:?}");
            return Err(Error::invalid(message));
        }
        Ok(())
    }
}

/// The sweeps of one process. Clones share state. They run until the last clone is dropped or the loops shut down.
#[derive(Clone)]
pub struct Sweeper {
    inner: Arc<Inner>,
    loops: Loops,
}

/// State shared by the handle, the loops and the visits.
struct Inner {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    settings: SweeperSettings,
    /// Random part of pass names, unique to this sweeper.
    name: u64,
    passes: AtomicU64,
    janitor: VisitQueues<Janitor>,
    reaper: VisitQueues<Reaper>,
    /// Whether the last listing of groups succeeded.
    listed: AtomicBool,
    /// Limits log lines about lapsed members.
    bursts: BurstLog,
    /// Wakes the loop that applies ended providers to the ledgers.
    followers: OnceLock<Waker>,
    /// The waiting requests of this process, which a tick confirms.
    waiting: OnceLock<Arc<WaitingGroups>>,
    groups: Mutex<BTreeMap<Group, GroupEntry>>,
    janitor_due: Mutex<Schedule<Work>>,
    reaper_due: Mutex<Schedule<ReapWork>>,
    reconcile_due: Mutex<Schedule<ReconcileWork>>,
    /// When to search the store for groups that are missing in its list.
    search_at: Mutex<Mono>,
}

/// A swept group.
struct GroupEntry {
    /// When it was last listed by the store or used by this process. A group that is no longer listed is dropped,
    /// unless it is occupied.
    named_at: Mono,
    /// Whether it last had members or pending work. If so it is kept, because the list of groups may have been lost.
    occupied: bool,
    /// How many members it last had.
    members: u64,
    /// When the janitor last visited it.
    visited_at: Option<Mono>,
    /// The last reported time of the earliest ended provider not yet applied to the ledger.
    offline: Option<StoreTime>,
}

impl fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweeper")
            .field("settings", &self.inner.settings)
            .finish_non_exhaustive()
    }
}

impl Sweeper {
    /// Starts the sweeps of a store that has `steps()`.
    ///
    /// # Errors
    /// `Unsupported` for a store that its daemon sweeps; `Invalid` for settings that cannot work, or if `loops` already
    /// runs the sweeps.
    pub fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        settings: SweeperSettings,
        loops: &Loops,
    ) -> Result<Self> {
        settings.check()?;
        if store.steps().is_none() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the daemon of this store runs the sweeps",
            ));
        }
        let turn_at_least = TURN_AT_LEAST.min(settings.interval);
        let name = clock.entropy();
        let search_at = clock.mono() + jitter(&*clock, settings.reconcile_interval / 2, 100);
        let inner = Arc::new(Inner {
            store,
            clock,
            settings,
            name,
            passes: AtomicU64::new(0),
            janitor: VisitQueues::new(loops.workers()),
            reaper: VisitQueues::new(loops.workers()),
            listed: AtomicBool::new(false),
            bursts: BurstLog::default(),
            followers: OnceLock::new(),
            waiting: OnceLock::new(),
            groups: Mutex::default(),
            janitor_due: Mutex::default(),
            reaper_due: Mutex::default(),
            reconcile_due: Mutex::default(),
            search_at: Mutex::new(search_at),
        });
        let body = Arc::clone(&inner);
        let janitor = LoopSettings {
            pace: visit::PACE,
            ..LoopSettings::new(JANITOR, turn_at_least)
        };
        inner
            .janitor
            .attach(loops.start(janitor, move || Janitor::new(Arc::clone(&body)))?);
        let body = Arc::clone(&inner);
        let reaper = LoopSettings::new(REAPER, inner.settings.reap_interval);
        inner
            .reaper
            .attach(loops.start(reaper, move || Reaper::new(Arc::clone(&body)))?);
        let body = Arc::clone(&inner);
        let reconcile = LoopSettings::new(RECONCILE, inner.settings.reconcile_interval);
        loops.start(reconcile, move || Reconciler::new(Arc::clone(&body)))?;
        Ok(Self {
            inner,
            loops: loops.clone(),
        })
    }

    /// Visits the group now: this process uses it.
    pub fn touch(&self, group: &Group) {
        self.inner.name_due(group, self.inner.clock.mono());
        self.loops.wake(JANITOR);
    }

    /// Searches the store in the background for groups missing in its list, as the reconcile does every
    /// `reconcile_interval`. The search scans all keys, so few processes should call it.
    pub fn find_groups(&self) {
        self.inner.search_from(self.inner.clock.mono());
        self.loops.wake(RECONCILE);
    }

    /// Sets the loop to wake when ended providers of a roster are due to be applied to the ledger, or when that due
    /// time changes. The janitor notices both first. Only the first call has an effect.
    pub fn wake_when_offline(&self, waker: Waker) {
        self.inner.followers.get_or_init(|| waker);
    }

    /// Sets the waiting requests that the ticks confirm. Only the first call has an effect.
    pub(crate) fn confirm(&self, waiting: Arc<WaitingGroups>) {
        self.inner.waiting.get_or_init(|| waiting);
    }

    /// Whether a group is swept.
    #[must_use]
    pub fn knows(&self, group: &Group) -> bool {
        self.inner.groups().contains_key(group)
    }

    /// The number of members of each swept group that had any when it was last visited.
    #[must_use]
    pub fn members(&self) -> HashMap<Group, u64> {
        let groups = self.inner.groups();
        let having = groups.iter().filter(|(_, entry)| entry.members > 0);
        having.map(|(group, entry)| (group.clone(), entry.members)).collect()
    }

    /// The swept groups.
    #[must_use]
    pub fn groups(&self) -> Vec<Group> {
        self.inner.groups().keys().cloned().collect()
    }
}

impl Inner {
    /// Visits a group at this time or earlier.
    fn name_due(&self, group: &Group, due_at: Mono) {
        if !self.name_group(group, due_at) {
            Janitor::schedule(self).at_latest(group, due_at);
        }
    }

    /// Notes that there is a group, to be visited at this time if it is new. Returns whether it is.
    fn name_group(&self, group: &Group, visit_at: Mono) -> bool {
        let now = self.clock.mono();
        let entry = || GroupEntry {
            named_at: now,
            occupied: false,
            members: 0,
            visited_at: None,
            offline: None,
        };
        let mut groups = self.groups();
        let is_new = !groups.contains_key(group);
        groups.entry(group.clone()).or_insert_with(entry).named_at = now;
        drop(groups);
        if is_new {
            Janitor::schedule(self).name(group, visit_at);
            // The janitor visits first, reports an earlier end of a grace and wakes the reaper. A group found while the
            // reaper sleeps is therefore not missed.
            Reaper::schedule(self).name(group, now + self.settings.reap_interval);
            // Spread over processes that started together, and never right after the start.
            let later = jitter(&*self.clock, self.settings.reconcile_interval / 2, 100);
            lock(&self.reconcile_due).name(group, now + later);
        }
        is_new
    }

    /// Records the end of a visit. Returns when the group is due next: after the wait, or earlier if it was touched
    /// during the visit.
    fn visited<S: Sweeping>(&self, group: &Group, visited: &Visited) -> Mono {
        let due_at = self.clock.mono() + visited.wait;
        S::schedule(self).done(group, due_at, visited.error.is_some())
    }

    /// Whether the last visit of every group failed; without groups, whether listing them failed.
    fn all_fail<S: Sweeping>(&self) -> bool {
        let failing = S::schedule(self).all_fail();
        failing.unwrap_or_else(|| !self.listed.load(Ordering::Relaxed))
    }

    fn forget_unnamed(&self) {
        let now = self.clock.mono();
        let longest = self.settings.interval.max(self.settings.discover * 30);
        let is_unnamed = |entry: &GroupEntry| now.since(entry.named_at) > longest && !entry.occupied;
        let groups = self.groups();
        let unnamed = groups.iter().filter(|(_, entry)| is_unnamed(entry));
        let unnamed: Vec<Group> = unnamed.map(|(group, _)| group.clone()).collect();
        drop(groups);
        unnamed.iter().for_each(|group| self.forget(group));
    }

    /// When the janitor last visited a group.
    fn visited_at(&self, group: &Group) -> Option<Mono> {
        self.groups().get(group)?.visited_at
    }

    /// Visits every group within a few seconds.
    fn visit_all(&self) {
        let (now, groups) = (self.clock.mono(), self.groups());
        let mut schedule = Janitor::schedule(self);
        for group in groups.keys() {
            schedule.at_latest(group, now + jitter(&*self.clock, VISIT_ALL_WITHIN / 2, 100));
        }
    }

    /// Visits the groups that have something, one after the other: many visits at a time would cost the store the next
    /// beat of its pulse, and be followed by as many.
    fn visit_occupied(&self) {
        let (mut at, groups) = (self.clock.mono(), self.groups());
        let mut schedule = Janitor::schedule(self);
        for (group, _) in groups.iter().filter(|(_, entry)| entry.occupied) {
            schedule.at_latest(group, at);
            at = at + VISITS_APART;
        }
    }

    /// Drops a group that the store has forgotten.
    fn forget(&self, group: &Group) {
        self.groups().remove(group);
        lock(&self.janitor_due).remove(group);
        lock(&self.reaper_due).remove(group);
        lock(&self.reconcile_due).remove(group);
        meters::reset_group(group);
    }

    fn search_from(&self, at: Mono) {
        *self.search_at.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// The time until the next search for lost groups.
    fn search_in(&self) -> Duration {
        let at = self.search_at.lock().unwrap_or_else(PoisonError::into_inner);
        at.since(self.clock.mono())
    }

    /// The time until the next group is due for a sweep.
    fn next_due<S: Sweeping>(&self) -> Option<Duration> {
        let next = S::schedule(self).next();
        next.map(|at| at.since(self.clock.mono()))
    }

    fn groups(&self) -> MutexGuard<'_, BTreeMap<Group, GroupEntry>> {
        lock(&self.groups)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The loop body of the janitor.
struct Janitor {
    inner: Arc<Inner>,
    discovery: Discovery,
}

impl Janitor {
    fn new(inner: Arc<Inner>) -> Self {
        let discovery = Discovery::new(inner.clock.mono());
        Self { inner, discovery }
    }
}

#[async_trait]
impl LoopBody for Janitor {
    async fn turn(&mut self) -> Result<Turn> {
        let inner = &self.inner;
        let discovered = self.discovery.turn(inner).await;
        let turn = VisitQueues::<Self>::turn(inner, self.discovery.next(inner.clock.mono()))?;
        match discovered {
            Err(error) if turn.stalled && turn.skipped == 0 && inner.groups().is_empty() => Err(error),
            discovered => Ok(Turn {
                skipped: turn.skipped + u64::from(discovered.is_err()),
                ..turn
            }),
        }
    }
}

impl Sweeping for Janitor {
    type Work = Work;

    fn schedule(inner: &Inner) -> MutexGuard<'_, Schedule<Work>> {
        lock(&inner.janitor_due)
    }

    fn queues(inner: &Inner) -> &VisitQueues<Self> {
        &inner.janitor
    }

    async fn visit(inner: &Inner, group: &Group, work: OwnedMutexGuard<Work>) -> Visited {
        Visit::new(inner, group, work).run().await
    }
}

#[cfg(test)]
mod tests;
