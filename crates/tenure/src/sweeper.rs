//! The sweeps: the janitor ends lapsed tenures and releases their holdings, the reaper deletes orphaned sessions, and
//! the reconcile repairs session indexes. They run in every process that uses a store without a daemon.
//!
//! No leader election is needed. Any number of sweepers may run on one store: each step is atomic there, and each
//! holding is released by exactly one of them. A sweeper ticks every group often enough that its own silence never
//! counts as a gap, sleeps until the earliest due time instead of polling, and keeps its counts exact when a reply is
//! lost, by reading the events of its own pass. A store error ends the pass; no member is marked dead.

mod context;
mod discovery;
mod journal;
mod queues;
mod reaper;
mod reconcile;
mod rest;
mod slot;
mod visit;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::{Clock, Mono, jitter};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::event::EventId;
use tenure_core::id::Group;
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
use slot::{Due, Slot};
use visit::{Visit, Visited, Work};

/// The name of the janitor's loop.
pub const JANITOR: &str = "janitor";
/// The name of the reaper's loop.
pub const REAPER: &str = "reaper";
/// The name of the reconcile's loop.
pub const RECONCILE: &str = "reconcile";

/// Settings of the sweeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweeperSettings {
    /// The longest time between two passes over a group. Ticks and due times cause more frequent passes; this is the
    /// maximum when nothing is due.
    pub interval: Duration,
    /// The longest time between two checks for sessions whose grace is over. Ending graces cause more frequent checks.
    pub reap_interval: Duration,
    /// How often all sessions are compared with their index. The first run starts at a random point of the interval.
    pub reconcile_interval: Duration,
    /// How often the groups of the store are listed. Shorter finds groups of other processes sooner.
    pub discover: Duration,
    /// How often a group without members is ticked until it rests, which is after it was empty for a minute.
    pub idle_tick: Duration,
    /// How long a group must be empty before the store is asked to forget it.
    pub forget_after: Duration,
    /// Concurrent visits to groups per store node. Visits longer than a quarter of `slice` are counted separately (at
    /// most 1,024). More keeps small groups prompt beside busy ones.
    pub at_once: usize,
    /// Longest visit to a group while others wait.
    pub slice: Duration,
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
            idle_tick: Duration::from_secs(2),
            forget_after: Duration::from_secs(24 * 3600),
            at_once: 8,
            slice: Duration::from_millis(100),
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
            ("idle_tick", self.idle_tick),
            ("slice", self.slice),
            ("give_up", self.give_up),
        ];
        if let Some((name, given)) = durations.into_iter().find(|(_, given)| *given < FLOOR) {
            let message = format!("the setting {name} of the sweeps is {given:?}; it must be at least {FLOOR:?}");
            return Err(Error::invalid(message));
        }
        if self.at_once == 0 {
            return Err(Error::invalid(
                "the setting at_once of the sweeps is 0; it must be at least 1",
            ));
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
    /// The newest event of a resting group; a newer one ends the rest.
    resting: Option<EventId>,
    janitor: Slot<Work>,
    reaper: Slot<ReapWork>,
    reconcile: Slot<ReconcileWork>,
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
        let turn_at_least = settings.idle_tick.min(settings.interval);
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
        self.inner.name_group(group, true);
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

    /// The swept groups.
    #[must_use]
    pub fn groups(&self) -> Vec<Group> {
        self.inner.groups().keys().cloned().collect()
    }
}

impl Inner {
    fn name_group(&self, group: &Group, now_due: bool) {
        let now = self.clock.mono();
        let mut groups = self.groups();
        let entry = groups.entry(group.clone()).or_insert_with(|| GroupEntry {
            named_at: now,
            occupied: false,
            resting: None,
            janitor: Slot::due_at(now),
            // The janitor visits first, reports an earlier end of a grace and wakes the reaper. A group found while the
            // reaper sleeps is therefore not missed.
            reaper: Slot::due_at(now + self.settings.reap_interval),
            // Spread over processes that started together, and never right after the start.
            reconcile: Slot::due_at(now + jitter(&*self.clock, self.settings.reconcile_interval / 2, 100)),
            offline: None,
        });
        entry.named_at = now;
        if now_due {
            entry.janitor.at_latest(now);
        }
    }

    /// The groups that are due for a sweep.
    fn take_due<W: Send + Default>(&self, slot: impl Fn(&mut GroupEntry) -> &mut Slot<W>) -> Vec<Due<W>> {
        let now = self.clock.mono();
        let mut groups = self.groups();
        let due = groups.iter_mut();
        due.filter_map(|(group, entry)| slot(entry).take(group, now)).collect()
    }

    /// Records the end of a visit. Returns when the group is due next: after the wait, or earlier if it was touched
    /// during the visit.
    fn visited<W: Default>(
        &self,
        group: &Group,
        visited: &Visited,
        slow: bool,
        slot: impl Fn(&mut GroupEntry) -> &mut Slot<W>,
    ) -> Mono {
        let due_at = self.clock.mono() + visited.wait;
        match self.groups().get_mut(group) {
            Some(entry) => slot(entry).done(due_at, visited.error.is_some(), slow),
            None => due_at,
        }
    }

    /// Whether the last visit of every group failed; without groups, whether listing them failed.
    fn all_fail<W: Default>(&self, slot: impl Fn(&mut GroupEntry) -> &mut Slot<W>) -> bool {
        let mut groups = self.groups();
        if groups.is_empty() {
            return !self.listed.load(Ordering::Relaxed);
        }
        groups.values_mut().all(|entry| slot(entry).failing())
    }

    fn forget_unnamed(&self) {
        let now = self.clock.mono();
        self.groups().retain(|group, entry| {
            let named = now.since(entry.named_at) <= self.settings.interval.max(self.settings.discover * 10);
            let keep = named || entry.occupied;
            if !keep {
                meters::reset_group(group);
            }
            keep
        });
    }

    /// Drops a group that the store has forgotten.
    fn forget(&self, group: &Group) {
        self.groups().remove(group);
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
    fn next_due<W: Default>(&self, slot: impl Fn(&mut GroupEntry) -> &mut Slot<W>) -> Option<Duration> {
        let now = self.clock.mono();
        let mut groups = self.groups();
        groups.values_mut().filter_map(|entry| slot(entry).due_in(now)).min()
    }

    fn groups(&self) -> MutexGuard<'_, BTreeMap<Group, GroupEntry>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

    fn slot(entry: &mut GroupEntry) -> &mut Slot<Work> {
        &mut entry.janitor
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
