//! The service of all rosters of a process.
//!
//! For the sweeps, [`Inner::known`] lists the rosters, [`Inner::ledger`] is the ledger and
//! [`RosterState::mirror`](super::state::RosterState::mirror) the mirror of a roster. [`Rosters::start`] starts their
//! loops.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::id::RosterName;
use tenure_core::ledger::Ledger;
use tenure_core::store::{Health, Store};
use tenure_core::timeout::Timeout;
use tokio::runtime::Handle;

use super::fallback::Guard;
use super::fallback::breaker::BreakerState;
use super::handle::Roster;
use super::heartbeat::HeartbeatSender;
use super::hot_store::{HotStoreStatus, HotStoreWatch};
use super::in_ledger::LedgerReads;
use super::ledger_watch::LedgerWatch;
use super::mirror::OutboxCleaner;
use super::mirror_client::{HotStoreContext, MirrorClient};
use super::settings::RostersSettings;
use super::state::RosterState;
use super::status::{BreakerView, RostersStatus};
use super::sync::ReachEpochs;
use super::{sweeps, sync};
use crate::batch::{BatchSettings, Batcher};
use crate::loops::{Loops, Waker};
use crate::sweeper::Sweeper;

/// A roster that the ledger does not know is forgotten after this time without a use.
const IDLE: Duration = Duration::from_secs(60);

/// All rosters of one process. Clones share state. The loops run until the last clone is dropped or they are shut down.
#[derive(Clone)]
pub struct Rosters {
    inner: Arc<Inner>,
    loops: Loops,
}

/// The state that handles, loops and sweeps share.
pub(crate) struct Inner {
    ledger: Arc<dyn Ledger>,
    ledger_watch: LedgerWatch,
    clock: Arc<dyn Clock>,
    settings: RostersSettings,
    runtime: Handle,
    hot: HotStoreContext,
    guard: Guard,
    reads: LedgerReads,
    cleaner: Batcher<OutboxCleaner>,
    rosters: Mutex<BTreeMap<RosterName, Arc<RosterState>>>,
    discovered: AtomicBool,
    waker: OnceLock<Waker>,
    sweeps: OnceLock<sweeps::Wakers>,
}

impl fmt::Debug for Rosters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rosters")
            .field("settings", &self.inner.settings)
            .field("loops", &self.loops)
            .finish_non_exhaustive()
    }
}

impl Rosters {
    /// Starts the service on a store with mirrors, and its loops. Its calls run on the runtime of `loops`.
    ///
    /// # Errors
    /// `Unsupported` for a store without mirrors (a remote daemon has its own rosters), `Invalid` or `Misconfigured`
    /// for settings that cannot work, `Invalid` when `loops` contains these loops already.
    pub fn start(
        store: Arc<dyn Store>,
        ledger: Arc<dyn Ledger>,
        clock: Arc<dyn Clock>,
        settings: RostersSettings,
        loops: &Loops,
    ) -> Result<Self> {
        let rosters = Self::start_without_sweeps(store, ledger, clock, settings, loops)?;
        let inner = &rosters.inner;
        let wakers = sweeps::start(inner, inner.settings.sweeps, loops)?;
        inner.sweeps.get_or_init(|| wakers);
        Ok(rosters)
    }

    /// Starts the service and its sync loop, without the sweeps.
    pub(super) fn start_without_sweeps(
        store: Arc<dyn Store>,
        ledger: Arc<dyn Ledger>,
        clock: Arc<dyn Clock>,
        settings: RostersSettings,
        loops: &Loops,
    ) -> Result<Self> {
        settings.check()?;
        if store.mirror().is_none() {
            return Err(Error::new(ErrorKind::Unsupported, "this store mirrors no roster"));
        }
        let runtime = loops.runtime().clone();
        let guard = Guard::new(Arc::clone(&clock), runtime.clone(), settings.fallback())?;
        let cleaner = OutboxCleaner {
            ledger: Arc::clone(&ledger),
            clock: Arc::clone(&clock),
            bound: Timeout::change(settings.ledger_timeout * 2),
        };
        let inner = Arc::new(Inner {
            hot: HotStoreContext::new(store, Arc::clone(&clock), settings.mirror_timeout),
            reads: LedgerReads::new(&guard),
            cleaner: Batcher::new(cleaner, Arc::clone(&clock), runtime.clone(), BatchSettings::default()),
            rosters: Mutex::default(),
            discovered: AtomicBool::new(false),
            waker: OnceLock::new(),
            sweeps: OnceLock::new(),
            ledger,
            ledger_watch: LedgerWatch::default(),
            clock,
            settings,
            runtime,
            guard,
        });
        let waker = sync::start(&inner, loops)?;
        inner.waker.get_or_init(|| waker);
        Ok(Self {
            inner,
            loops: loops.clone(),
        })
    }

    /// The roster of that name, whether or not the ledger knows it. No I/O.
    ///
    /// # Errors
    /// `Invalid` for a name too long for a group; `Unavailable` when [`RostersSettings::max_rosters`] are in use.
    pub fn roster(&self, name: &RosterName) -> Result<Roster> {
        let state = self.inner.state_of(name)?;
        Ok(Roster {
            inner: Arc::clone(&self.inner),
            state,
        })
    }

    /// Wakes the follow sweep when the janitor of this process sees the end of a provider's tenure. Without it, the
    /// ledger follows within [`SweepIntervals::offline`](super::SweepIntervals::offline).
    pub fn follow(&self, sweeper: &Sweeper) {
        if let Some(wakers) = self.inner.sweeps.get() {
            sweeper.wake_when_offline(wakers.follow.clone());
        }
    }

    /// The names of the rosters that the ledger listed last. No I/O.
    #[must_use]
    pub fn names(&self) -> Vec<RosterName> {
        self.inner.known().iter().map(|state| state.roster().clone()).collect()
    }

    /// The status of all rosters. No I/O, O(rosters).
    #[must_use]
    pub fn status(&self) -> RostersStatus {
        let now = self.inner.clock.mono();
        let guard = self.inner.guard.status();
        RostersStatus {
            rosters: self.inner.known().iter().map(|state| state.status(now)).collect(),
            discovered: self.inner.discovered.load(Ordering::Relaxed),
            ledger: self.inner.ledger_health(),
            hot_store_refused: self.inner.hot_store().refusal(),
            breaker: match guard.breaker {
                BreakerState::Closed => BreakerView::Closed,
                BreakerState::Open(left) => BreakerView::Open(left),
                BreakerState::HalfOpen => BreakerView::HalfOpen,
            },
            fallback_running: guard.running,
            fallback_waiting: guard.waiting,
        }
    }

    /// The hot store of this process and that of the ledger.
    ///
    /// # Errors
    /// Those of the store and the ledger.
    pub async fn hot_store(&self) -> Result<HotStoreStatus> {
        self.inner.hot_store_status().await
    }

    /// Makes the hot store of this process that of the ledger, for all processes. Those with the previous one serve their
    /// rosters from the ledger until they use this one.
    ///
    /// # Errors
    /// Those of the store and the ledger.
    pub async fn replace_hot_store(&self) -> Result<HotStoreStatus> {
        self.inner.replace_hot_store().await
    }

    /// Whether this process has state of a roster.
    #[cfg(test)]
    pub(super) fn keeps(&self, name: &RosterName) -> bool {
        self.inner.rosters().contains_key(name)
    }

    /// The durable truth.
    #[must_use]
    pub fn ledger(&self) -> &Arc<dyn Ledger> {
        &self.inner.ledger
    }
}

impl Inner {
    /// The rosters that the ledger knows.
    pub(crate) fn known(&self) -> Vec<Arc<RosterState>> {
        let rosters = self.rosters();
        rosters
            .values()
            .filter(|state| state.mirror().is_known())
            .cloned()
            .collect()
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn shared_clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn ledger(&self) -> &Arc<dyn Ledger> {
        &self.ledger
    }

    pub(super) fn ledger_watch(&self) -> &LedgerWatch {
        &self.ledger_watch
    }

    /// The ledger's own health, or the poll's: a call that timed out in this process does not show in the ledger's.
    fn ledger_health(&self) -> Health {
        match (self.ledger.health(), self.ledger_watch.why_away()) {
            (Health::Up, Some(reason)) => Health::Down { reason },
            (health, _) => health,
        }
    }

    pub(super) fn hot_store(&self) -> &HotStoreWatch {
        self.hot.watch()
    }

    pub(super) fn store(&self) -> &dyn Store {
        self.hot.store()
    }

    pub(crate) fn settings(&self) -> &RostersSettings {
        &self.settings
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(super) fn guard(&self) -> &Guard {
        &self.guard
    }

    pub(super) fn reads(&self) -> &LedgerReads {
        &self.reads
    }

    pub(super) fn cleaner(&self) -> &Batcher<OutboxCleaner> {
        &self.cleaner
    }

    /// Wakes the sync loop.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Wakes the reconcile sweep.
    pub(super) fn wake_reconcile(&self) {
        if let Some(wakers) = self.sweeps.get() {
            wakers.reconcile.wake();
        }
    }

    /// Wakes the heartbeat sweep.
    pub(super) fn wake_heartbeats(&self) {
        if let Some(wakers) = self.sweeps.get() {
            wakers.heartbeats.wake();
        }
    }

    /// Wakes the expiry sweep for an engagement that was just written.
    pub(super) fn wake_expiry(&self, state: &RosterState) {
        state.set_expiring();
        self.wake_expiry_loop();
    }

    pub(super) fn wake_expiry_loop(&self) {
        if let Some(wakers) = self.sweeps.get() {
            wakers.expiry.wake();
        }
    }

    /// Bounds a background call of the ledger: a hanging ledger must not block the upkeep of the mirror.
    ///
    /// # Errors
    /// Those of the call; `Unavailable` on a time-out.
    pub(crate) async fn in_time<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let bound = Timeout::change(self.settings.ledger_timeout * 2);
        bound.call(&*self.clock, "the ledger", call).await
    }

    fn state_of(&self, name: &RosterName) -> Result<Arc<RosterState>> {
        let mut rosters = self.rosters();
        if let Some(state) = rosters.get(name) {
            return Ok(Arc::clone(state));
        }
        if rosters.len() >= self.settings.max_rosters {
            return Err(Error::unavailable(
                format!("{} rosters are in use already; raise the limit", rosters.len()),
                Outcome::Unchanged,
            ));
        }
        let mirror = Arc::new(MirrorClient::new(self.hot.clone(), name.clone())?);
        let heartbeats = HeartbeatSender {
            mirror: Arc::clone(&mirror),
        };
        let (clock, runtime) = (Arc::clone(&self.clock), self.runtime.clone());
        let heartbeats = Batcher::new(heartbeats, clock, runtime, self.settings.heartbeats);
        let state = Arc::new(RosterState::new(mirror, heartbeats, self.clock.mono()));
        rosters.insert(name.clone(), Arc::clone(&state));
        Ok(state)
    }

    /// The present reach epoch of each mirror; `None` for unreachable ones.
    pub(super) fn reach_epochs(&self) -> ReachEpochs {
        let reach_epoch = |state: &RosterState| {
            let trust = state.mirror().trust();
            (!trust.is_away()).then(|| trust.reach_epoch())
        };
        let rosters = self.rosters();
        rosters
            .iter()
            .map(|(name, state)| (name.clone(), reach_epoch(state)))
            .collect()
    }

    /// Updates the known rosters from the ledger's list.
    pub(super) fn discovered(&self, names: &BTreeSet<RosterName>) {
        // The ledger never removes a roster. One that it does not have is forgotten when it is unused, or when its
        // place is needed for one that the ledger has.
        let now = self.clock.mono();
        {
            let mut rosters = self.rosters();
            rosters.retain(|_, state| state.mirror().is_known() || !state.is_idle(now, IDLE));
            let wanted = names.iter().filter(|name| !rosters.contains_key(*name)).count();
            let room = self.settings.max_rosters.saturating_sub(rosters.len());
            let unknown = rosters
                .iter()
                .filter(|(name, state)| !state.mirror().is_known() && !names.contains(*name));
            let unknown: Vec<RosterName> = unknown.map(|(name, _)| name.clone()).collect();
            for name in unknown.iter().take(wanted.saturating_sub(room)) {
                rosters.remove(name);
            }
        }
        for name in names {
            match self.state_of(name) {
                Ok(state) => state.mirror().set_known(true),
                Err(error) => tracing::warn!(roster = %name, error = error.chain(), "a roster cannot be served"),
            }
        }
        self.discovered.store(true, Ordering::Relaxed);
    }

    fn rosters(&self) -> MutexGuard<'_, BTreeMap<RosterName, Arc<RosterState>>> {
        self.rosters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
