//! A supervisor for named background loops. It restarts a loop after a panic and reports its status.
//!
//! A loop is a body whose `turn` is called repeatedly: at the latest after its maximal interval (±10 %, with a random
//! first phase, so that processes do not tick in step), and earlier if the turn requests it. A failed turn is retried
//! with backoff. A panic is caught and counted, and the loop continues with a new body. Only [`Loops::shut_down`] ends
//! a loop.
//!
//! After a pause of the process a loop turns once, not once per missed turn.

mod body;
mod owned;
mod running;
mod status;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::{Clock, Mono, within};
use tenure_core::error::{Error, Result};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use body::{LoopBody, Turn};
pub(crate) use owned::{OwnedLoop, Owner, run_owned};
pub use status::{LoopStatus, Outcome};

/// Shortest time between two turns of a loop, whatever its body and its wakers request.
pub const FLOOR: Duration = Duration::from_millis(20);
/// The first backoff after a failed turn. It doubles up to the maximal interval.
pub const FIRST_BACKOFF: Duration = Duration::from_millis(100);

/// Called with the name of a loop at the start of each turn. Tests use it to make a loop panic.
pub type Probe = Arc<dyn Fn(&str) + Send + Sync>;

/// Settings of one loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopSettings {
    /// Unique name among the loops of a supervisor; the metric label `sweep`.
    pub name: String,
    /// The longest time between two turns. Shorter finds changes sooner by polling, longer costs less.
    pub max_interval: Duration,
    /// Shortest time from a turn to one whose time is known in advance. A shorter one keeps that time more exactly. A loop
    /// whose turns take long pauses longer, up to [`FLOOR`].
    pub pace: Duration,
    /// After this many panics in a row, [`Loops::escalated`] reports the loop. The loop continues.
    pub escalate_after: u32,
}

impl LoopSettings {
    /// Default settings: no turn before [`FLOOR`] has passed, and reported after 5 panics in a row.
    pub fn new(name: impl Into<String>, max_interval: Duration) -> Self {
        Self {
            name: name.into(),
            max_interval,
            pace: FLOOR,
            escalate_after: 5,
        }
    }
}

/// The supervisor. Clones share state. The loops end when the last clone is dropped.
#[derive(Clone)]
pub struct Loops {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    runtime: Handle,
    probe: Option<Probe>,
    stop: CancellationToken,
    tasks: TaskTracker,
    loops: Mutex<BTreeMap<String, Arc<LoopEntry>>>,
    escalated: watch::Sender<Option<String>>,
}

/// State shared by the supervisor and the running loop.
#[derive(Debug)]
struct LoopEntry {
    settings: LoopSettings,
    wake: Notify,
    /// Notified when the next turn is due earlier than planned.
    sooner: Notify,
    status: Mutex<LoopStatus>,
}

impl LoopEntry {
    fn status(&self) -> MutexGuard<'_, LoopStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes one loop like [`Loops::wake`]. It does not keep the supervisor alive, so code inside a loop may hold it.
#[derive(Debug, Clone)]
pub struct Waker(Arc<LoopEntry>);

impl Waker {
    /// Makes the loop turn now instead of at its due time.
    pub fn wake(&self) {
        self.0.wake.notify_one();
    }

    /// Makes the next turn due at `at` if it is due later, also after a failed turn. It costs no turn of its own.
    pub(crate) fn wake_at(&self, at: Mono) {
        if self.0.status().at_latest(at) {
            self.0.sooner.notify_one();
        }
    }

    /// Reports that work outlasting the loop's turns has started or ended. `under_way`: whether any is left.
    pub(crate) fn progressed(&self, now: Mono, under_way: bool) {
        let mut status = self.0.status();
        (status.finished_at, status.under_way) = (now, under_way);
    }
}

/// Runs work that outlasts a loop's turns without keeping the supervisor alive. A shutdown waits for it.
#[derive(Debug, Clone)]
pub(crate) struct Workers {
    runtime: Handle,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Workers {
    pub(crate) fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.tasks.spawn_on(work, &self.runtime)
    }

    /// Whether the loops are shutting down, so that no new work must start.
    pub(crate) fn are_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }
}

impl fmt::Debug for Loops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loops")
            .field("loops", &self.snapshot())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Loops {
    /// A supervisor whose loops run on `runtime`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, runtime: Handle) -> Self {
        Self::with_probe(clock, runtime, None)
    }

    /// A supervisor that calls `probe` at the start of every turn.
    #[must_use]
    pub fn with_probe(clock: Arc<dyn Clock>, runtime: Handle, probe: Option<Probe>) -> Self {
        let inner = Inner {
            clock,
            runtime,
            probe,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            loops: Mutex::new(BTreeMap::new()),
            escalated: watch::Sender::new(None),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Starts a loop. `make` creates its body at the start and after each panic, so that state left by a panicked turn
    /// is never reused. The returned waker may be dropped.
    ///
    /// # Errors
    /// `Invalid` for a name in use or an interval below [`FLOOR`].
    pub fn start<B: LoopBody>(
        &self,
        settings: LoopSettings,
        mut make: impl FnMut() -> B + Send + 'static,
    ) -> Result<Waker> {
        if settings.max_interval < FLOOR {
            return Err(Error::invalid(format!(
                "the interval {:?} of the loop {} is below {FLOOR:?}",
                settings.max_interval, settings.name
            )));
        }
        let entry = Arc::new(LoopEntry {
            wake: Notify::new(),
            sooner: Notify::new(),
            status: Mutex::new(LoopStatus::of(&settings, &*self.inner.clock)),
            settings,
        });
        {
            let mut loops = self.loops();
            if loops.contains_key(&entry.settings.name) {
                return Err(Error::invalid(format!(
                    "a loop named {} already exists",
                    entry.settings.name
                )));
            }
            loops.insert(entry.settings.name.clone(), Arc::clone(&entry));
        }
        let running = running::Running::new(&self.inner, Arc::clone(&entry));
        let boxed = move || Box::new(make()) as Box<dyn LoopBody>;
        self.inner
            .tasks
            .spawn_on(running.run(Box::new(boxed)), &self.inner.runtime);
        Ok(Waker(entry))
    }

    /// Makes a loop turn now instead of at its due time, but not before [`FLOOR`] has passed since its last turn.
    /// Wake-ups coalesce. An unknown name is ignored.
    pub fn wake(&self, name: &str) {
        if let Some(entry) = self.loops().get(name) {
            entry.wake.notify_one();
        }
    }

    /// Workers for work that outlasts a turn.
    pub(crate) fn workers(&self) -> Workers {
        Workers {
            runtime: self.inner.runtime.clone(),
            stop: self.inner.stop.clone(),
            tasks: self.inner.tasks.clone(),
        }
    }

    /// The runtime of the loops.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.inner.runtime
    }

    /// The status of each loop, ordered by name. No I/O.
    #[must_use]
    pub fn snapshot(&self) -> Vec<LoopStatus> {
        let now = self.inner.clock.mono();
        self.loops()
            .values()
            .map(|entry| entry.status().clone().seen_at(now))
            .collect()
    }

    /// Waits until a loop has panicked `escalate_after` times in a row, and returns its name. A program usually exits
    /// with an error then, so that its process manager restarts it.
    pub async fn escalated(&self) -> String {
        let mut escalated = self.inner.escalated.subscribe();
        loop {
            if let Some(name) = escalated.borrow_and_update().clone() {
                return name;
            }
            if escalated.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Stops all loops: idle ones immediately, the others after their turn and their work. Waits at most `patience`.
    /// Returns whether all have ended; the rest ends with its runtime.
    pub async fn shut_down(&self, patience: Duration) -> bool {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        within(&*self.inner.clock, patience, self.inner.tasks.wait())
            .await
            .is_some()
    }

    fn loops(&self) -> MutexGuard<'_, BTreeMap<String, Arc<LoopEntry>>> {
        self.inner.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
