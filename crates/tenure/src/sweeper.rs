//! The janitor, the reaper and the reconcile: end what lapsed, release what the ended held, and delete orphans, in every
//! process that uses a store without a daemon.
//!
//! It needs no election. Any number of sweepers may run on one store: each step is atomic there, and each holding is
//! released by exactly one of them. A sweeper keeps three promises of its own: it ticks every group often enough that
//! its own silence is never taken for a gap; it sleeps until the earliest due time instead of polling; and it loses or
//! doubles no count when a reply is lost (it reads the events of its own pass back). An error of the store ends the pass
//! and declares nobody dead.

mod discovery;
mod journal;
mod lanes;
mod reach;
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

use crate::crowd::CrowdLog;
use crate::loops::{FLOOR, LoopBody, LoopSettings, Loops, Turn, Waker};
use crate::meters;
use discovery::Discovery;
use lanes::{Lanes, Sweeping};
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

/// How the sweeps run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweeperSettings {
    /// The longest time between two passes over a group. Ticks and due times make it far more often in practice; this
    /// is what remains when there is nothing to do.
    pub interval: Duration,
    /// The longest time between two looks for sessions whose grace is over. The ends of graces make it far more often.
    pub reap_interval: Duration,
    /// How often all sessions are compared with their index; the first time anywhere in it.
    pub reconcile_interval: Duration,
    /// How often the store is asked which groups it has. Shorter finds groups of other processes sooner.
    pub discover: Duration,
    /// How often a group without members is ticked, until it rests: after a minute without anything in it.
    pub idle_tick: Duration,
    /// For how long a group has to be empty before the store is asked to forget it.
    pub forget_after: Duration,
    /// How many groups of one node of the store are worked on at once, without those that take longer than a quarter of
    /// `slice`, which are counted apart (at most 256). More keeps small groups prompt beside busy ones.
    pub at_once: usize,
    /// How long one visit to a group may take before the others get their turn.
    pub slice: Duration,
    /// After this long the outcome of a step counts as unknown.
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

/// The sweeps of one process. Cheap to clone; it runs for as long as a clone is held, or until its loops are shut down.
#[derive(Clone)]
pub struct Sweeper {
    inner: Arc<Inner>,
    loops: Loops,
}

/// What the handle, the loops and the visits share.
struct Inner {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    settings: SweeperSettings,
    /// Makes the names of this sweeper's passes unlike anybody's.
    name: u64,
    passes: AtomicU64,
    janitor: Lanes<Janitor>,
    reaper: Lanes<Reaper>,
    /// Whether the store last told its groups.
    listed: AtomicBool,
    /// Limits the lines about members that lapsed.
    crowd: CrowdLog,
    /// Wakes whoever lets the ledgers of rosters follow.
    followers: OnceLock<Waker>,
    groups: Mutex<BTreeMap<Group, Entry>>,
    /// When to search the store for groups that its list has lost.
    search_at: Mutex<Mono>,
}

/// A group that is swept.
struct Entry {
    /// When it was last named, by the store or by this process. A group that is not named is dropped, unless it is occupied.
    named_at: Mono,
    /// Whether it had members or work left when it was last looked at: the list that names it may have been lost.
    occupied: bool,
    /// The newest event of a group that rests: when there is a newer one, it is visited at once.
    resting: Option<EventId>,
    janitor: Slot<Work>,
    reaper: Slot<ReapWork>,
    reconcile: Slot<ReconcileWork>,
    /// The time of the earliest end that a ledger has to follow, as it was told last.
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
    /// Starts the sweeps of a store whose `steps()` are there.
    ///
    /// # Errors
    /// `Unsupported` for a store that a daemon sweeps, `Invalid` for settings that cannot work, or when `loops` has
    /// them already.
    pub fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        settings: SweeperSettings,
        loops: &Loops,
    ) -> Result<Self> {
        settings.check()?;
        if store.steps().is_none() {
            return Err(Error::new(ErrorKind::Unsupported, "this store is swept by its daemon"));
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
            janitor: Lanes::new(loops.workers()),
            reaper: Lanes::new(loops.workers()),
            listed: AtomicBool::new(false),
            crowd: CrowdLog::default(),
            followers: OnceLock::new(),
            groups: Mutex::default(),
            search_at: Mutex::new(search_at),
        });
        let body = Arc::clone(&inner);
        let janitor = LoopSettings::new(JANITOR, turn_at_least);
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

    /// This process serves the group now: visit it without waiting to discover it.
    pub fn touch(&self, group: &Group) {
        self.inner.name_group(group, true);
        self.loops.wake(JANITOR);
    }

    /// Searches the store for groups that its list has lost, soon and in the background, as the reconcile does every
    /// `reconcile_interval`. For a process that few of are started: the search goes through all keys.
    pub fn find_groups(&self) {
        self.inner.search_from(self.inner.clock.mono());
        self.loops.wake(RECONCILE);
    }

    /// From now on wakes this loop when providers of some roster have ended and the ledger has to follow, or when that is
    /// due at another time than it was: the janitor, which looks at every group all the time, sees it first. One loop; a
    /// second is not heeded.
    pub fn wake_when_offline(&self, waker: Waker) {
        self.inner.followers.get_or_init(|| waker);
    }

    /// The groups it visits.
    #[must_use]
    pub fn groups(&self) -> Vec<Group> {
        self.inner.groups().keys().cloned().collect()
    }
}

impl Inner {
    fn name_group(&self, group: &Group, now_due: bool) {
        let now = self.clock.mono();
        let mut groups = self.groups();
        let entry = groups.entry(group.clone()).or_insert_with(|| Entry {
            named_at: now,
            occupied: false,
            resting: None,
            janitor: Slot::due_at(now),
            // The janitor, which looks first, tells of an earlier time and wakes it: so a group that is found while the
            // reaper sleeps is not one that is due without its knowing.
            reaper: Slot::due_at(now + self.settings.reap_interval),
            // Processes that were started together must not compare everything together, and none at its start.
            reconcile: Slot::due_at(now + jitter(&*self.clock, self.settings.reconcile_interval / 2, 100)),
            offline: None,
        });
        entry.named_at = now;
        if now_due {
            entry.janitor.at_latest(now);
        }
    }

    /// The groups whose time has come for a sweep.
    fn take_due<W: Send + Default>(&self, slot: impl Fn(&mut Entry) -> &mut Slot<W>) -> Vec<Due<W>> {
        let now = self.clock.mono();
        let mut groups = self.groups();
        let due = groups.iter_mut();
        due.filter_map(|(group, entry)| slot(entry).take(group, now)).collect()
    }

    /// A visit ended, and was slow or not; the group is due again in a while, or earlier if it was touched since.
    /// Answers when.
    fn visited<W: Default>(
        &self,
        group: &Group,
        visited: &Visited,
        slow: bool,
        slot: impl Fn(&mut Entry) -> &mut Slot<W>,
    ) -> Mono {
        let due_at = self.clock.mono() + visited.wait;
        match self.groups().get_mut(group) {
            Some(entry) => slot(entry).done(due_at, visited.error.is_some(), slow),
            None => due_at,
        }
    }

    /// Whether the last visit of every group has failed; without any group, whether the store does not tell its groups.
    fn nothing_works<W: Default>(&self, slot: impl Fn(&mut Entry) -> &mut Slot<W>) -> bool {
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
                meters::no_group(group);
            }
            keep
        });
    }

    /// The store has forgotten the group.
    fn forget(&self, group: &Group) {
        self.groups().remove(group);
        meters::no_group(group);
    }

    fn search_from(&self, at: Mono) {
        *self.search_at.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// How long until the next search for lost groups.
    fn search_in(&self) -> Duration {
        let at = self.search_at.lock().unwrap_or_else(PoisonError::into_inner);
        at.since(self.clock.mono())
    }

    /// How long until the next group is due for a sweep.
    fn next_due<W: Default>(&self, slot: impl Fn(&mut Entry) -> &mut Slot<W>) -> Option<Duration> {
        let now = self.clock.mono();
        let mut groups = self.groups();
        groups.values_mut().filter_map(|entry| slot(entry).due_in(now)).min()
    }

    fn groups(&self) -> MutexGuard<'_, BTreeMap<Group, Entry>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of the loop.
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
        let turn = Lanes::<Self>::turn(inner, self.discovery.next(inner.clock.mono()))?;
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

    fn slot(entry: &mut Entry) -> &mut Slot<Work> {
        &mut entry.janitor
    }

    fn lanes(inner: &Inner) -> &Lanes<Self> {
        &inner.janitor
    }

    async fn visit(inner: &Inner, group: &Group, work: OwnedMutexGuard<Work>) -> Visited {
        Visit::new(inner, group, work).run().await
    }
}

#[cfg(test)]
mod tests;
