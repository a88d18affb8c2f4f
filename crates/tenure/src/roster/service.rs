//! The service of all rosters of a process.
//!
//! For the sweeps: [`Inner::known`] lists the rosters, [`Inner::ledger`] and [`One::line`](super::one::One::line) lead to
//! both sides, and [`Rosters::start`] is where their loops are started.

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
use super::heartbeat::Hearts;
use super::in_ledger::LedgerReads;
use super::ledger_watch::LedgerWatch;
use super::line::{Hot, Line};
use super::mirror::Cleaning;
use super::one::One;
use super::settings::RostersSettings;
use super::status::{BreakerView, RostersStatus};
use super::sync::Reaches;
use super::{sweeps, sync};
use crate::batch::{BatchSettings, Gatherer};
use crate::loops::{Loops, Waker};
use crate::sweeper::Sweeper;

/// After which time without a use a roster is forgotten that the ledger does not know.
const IDLE: Duration = Duration::from_secs(60);

/// All rosters of one process. Cheap to clone; all clones are one. Its loops run for as long as a clone is held, or until
/// they are shut down.
#[derive(Clone)]
pub struct Rosters {
    inner: Arc<Inner>,
    loops: Loops,
}

/// What the handles, the loops and the sweeps share.
pub(crate) struct Inner {
    ledger: Arc<dyn Ledger>,
    ledger_watch: LedgerWatch,
    clock: Arc<dyn Clock>,
    settings: RostersSettings,
    runtime: Handle,
    hot: Hot,
    guard: Guard,
    reads: LedgerReads,
    cleaner: Gatherer<Cleaning>,
    rosters: Mutex<BTreeMap<RosterName, Arc<One>>>,
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
    /// Starts the service on a store that has mirrors, and the loops that keep it up. Its calls run on the runtime of
    /// `loops`.
    ///
    /// # Errors
    /// `Unsupported` for a store without mirrors (a daemon elsewhere has rosters of its own), `Invalid` or `Misconfigured`
    /// for settings that cannot work, `Invalid` when `loops` has these loops already.
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

    /// The service and the loop that keeps it in step, alone.
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
        let cleaning = Cleaning {
            ledger: Arc::clone(&ledger),
            clock: Arc::clone(&clock),
            bound: Timeout::change(settings.ledger_timeout * 2),
        };
        let inner = Arc::new(Inner {
            hot: Hot::new(store, Arc::clone(&clock), settings.mirror_timeout),
            reads: LedgerReads::new(&guard),
            cleaner: Gatherer::new(cleaning, Arc::clone(&clock), runtime.clone(), BatchSettings::default()),
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

    /// The roster of that name, whether or not the ledger has heard of it. No I/O.
    ///
    /// # Errors
    /// `Invalid` for a name that is too long to be a group's as well; `Unavailable` when more rosters are in use than
    /// [`RostersSettings::max_rosters`].
    pub fn roster(&self, name: &RosterName) -> Result<Roster> {
        let one = self.inner.one(name)?;
        Ok(Roster {
            inner: Arc::clone(&self.inner),
            one,
        })
    }

    /// Lets the ledger follow as soon as the janitor of this process sees that a provider's tenure has ended. Without, it
    /// follows within [`SweepIntervals::offline`](super::SweepIntervals::offline).
    pub fn follow(&self, sweeper: &Sweeper) {
        if let Some(wakers) = self.inner.sweeps.get() {
            sweeper.wake_when_offline(wakers.follow.clone());
        }
    }

    /// The rosters that the ledger knows, by name, as it told last. No I/O.
    #[must_use]
    pub fn names(&self) -> Vec<RosterName> {
        self.inner.known().iter().map(|one| one.roster().clone()).collect()
    }

    /// How they stand. No I/O, O(rosters).
    #[must_use]
    pub fn status(&self) -> RostersStatus {
        let now = self.inner.clock.mono();
        let guard = self.inner.guard.status();
        RostersStatus {
            rosters: self.inner.known().iter().map(|one| one.status(now)).collect(),
            discovered: self.inner.discovered.load(Ordering::Relaxed),
            ledger: self.inner.ledger_health(),
            breaker: match guard.breaker {
                BreakerState::Closed => BreakerView::Closed,
                BreakerState::Open(left) => BreakerView::Open(left),
                BreakerState::HalfOpen => BreakerView::HalfOpen,
            },
            fallback_running: guard.running,
            fallback_waiting: guard.waiting,
        }
    }

    /// Whether a roster is kept in mind.
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
    pub(crate) fn known(&self) -> Vec<Arc<One>> {
        let rosters = self.rosters();
        rosters.values().filter(|one| one.line().is_known()).cloned().collect()
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

    /// As the ledger says of itself, or as the poll finds it: a call that this process gave up tells the ledger nothing.
    fn ledger_health(&self) -> Health {
        match (self.ledger.health(), self.ledger_watch.why_away()) {
            (Health::Up, Some(reason)) => Health::Down { reason },
            (health, _) => health,
        }
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

    pub(super) fn cleaner(&self) -> &Gatherer<Cleaning> {
        &self.cleaner
    }

    /// Lets the loop that keeps mirrors up turn now.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Lets the mirror of some roster be compared now.
    pub(super) fn wake_reconcile(&self) {
        if let Some(wakers) = self.sweeps.get() {
            wakers.reconcile.wake();
        }
    }

    /// Lets heartbeats be written down now.
    pub(super) fn wake_heartbeats(&self) {
        if let Some(wakers) = self.sweeps.get() {
            wakers.heartbeats.wake();
        }
    }

    /// Lets engagements end in time of which one was written down just now.
    pub(super) fn wake_expiry(&self, one: &One) {
        one.set_expiring();
        self.wake_expiry_loop();
    }

    pub(super) fn wake_expiry_loop(&self) {
        if let Some(wakers) = self.sweeps.get() {
            wakers.expiry.wake();
        }
    }

    /// Bounds a call of the ledger that nobody is answered by: one that hangs must not hold up what the mirror needs.
    ///
    /// # Errors
    /// Those of the call; `Unavailable` when it took too long.
    pub(crate) async fn in_time<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let bound = Timeout::change(self.settings.ledger_timeout * 2);
        bound.call(&*self.clock, "the ledger", call).await
    }

    fn one(&self, name: &RosterName) -> Result<Arc<One>> {
        let mut rosters = self.rosters();
        if let Some(one) = rosters.get(name) {
            return Ok(Arc::clone(one));
        }
        if rosters.len() >= self.settings.max_rosters {
            return Err(Error::unavailable(
                format!("{} rosters are in use already; raise the limit", rosters.len()),
                Outcome::Unchanged,
            ));
        }
        let line = Arc::new(Line::new(self.hot.clone(), name.clone())?);
        let hearts = Hearts {
            line: Arc::clone(&line),
        };
        let (clock, runtime) = (Arc::clone(&self.clock), self.runtime.clone());
        let hearts = Gatherer::new(hearts, clock, runtime, self.settings.heartbeats);
        let one = Arc::new(One::new(line, hearts, self.clock.mono()));
        rosters.insert(name.clone(), Arc::clone(&one));
        Ok(one)
    }

    /// In which stretch each mirror is reached now.
    pub(super) fn reaches(&self) -> Reaches {
        let reach = |one: &One| {
            let trust = one.line().trust();
            (!trust.is_away()).then(|| trust.reach())
        };
        let rosters = self.rosters();
        rosters.iter().map(|(name, one)| (name.clone(), reach(one))).collect()
    }

    /// The ledger has told which rosters it knows.
    pub(super) fn discovered(&self, names: &BTreeSet<RosterName>) {
        // Nothing takes a roster out of the ledger; one that it never had is forgotten when nobody asks for it, and before
        // that when its place is needed for one that the ledger has.
        let now = self.clock.mono();
        {
            let mut rosters = self.rosters();
            rosters.retain(|_, one| one.line().is_known() || !one.is_idle(now, IDLE));
            let wanted = names.iter().filter(|name| !rosters.contains_key(*name)).count();
            let room = self.settings.max_rosters.saturating_sub(rosters.len());
            let unknown = rosters
                .iter()
                .filter(|(name, one)| !one.line().is_known() && !names.contains(*name));
            let unknown: Vec<RosterName> = unknown.map(|(name, _)| name.clone()).collect();
            for name in unknown.iter().take(wanted.saturating_sub(room)) {
                rosters.remove(name);
            }
        }
        for name in names {
            match self.one(name) {
                Ok(one) => one.line().set_known(true),
                Err(error) => tracing::warn!(roster = %name, error = error.chain(), "a roster cannot be served"),
            }
        }
        self.discovered.store(true, Ordering::Relaxed);
    }

    fn rosters(&self) -> MutexGuard<'_, BTreeMap<RosterName, Arc<One>>> {
        self.rosters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
