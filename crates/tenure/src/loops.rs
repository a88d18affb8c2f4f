//! The supervisor of background loops: each has a name, survives its bad turns, and is visible.
//!
//! A loop is a body whose `turn` is called again and again: at the latest after its maximal interval (±10 %, with a
//! random first phase, so that many processes do not tick together), and earlier when the turn asks for it. A turn that
//! fails is tried again with backoff. A turn that panics is caught and counted, and the loop goes on with a fresh body.
//! Nothing that a body does can end its loop; only [`Loops::shut_down`] does.
//!
//! After a pause of the process a loop turns once, not once for every turn that it missed.

mod body;
mod keeper;
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
pub(crate) use keeper::{Keeper, Owner, keep};
pub use status::{LoopStatus, Outcome};

/// The least time between two turns of one loop, whatever a body asks for.
pub const FLOOR: Duration = Duration::from_millis(20);
/// The first wait after a failed turn; it doubles up to the maximal interval.
pub const FIRST_BACKOFF: Duration = Duration::from_millis(100);

/// Called with the name of a loop at the start of each of its turns. A test uses it to make a loop panic by name.
pub type Probe = Arc<dyn Fn(&str) + Send + Sync>;

/// How one loop runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopSettings {
    /// Its name, unique among the loops of one supervisor; the label `sweep` of its metrics.
    pub name: String,
    /// The longest time between two turns. Shorter notices more by polling, longer costs less.
    pub max_interval: Duration,
    /// After this many panics in a row the loop is reported to the owner ([`Loops::escalated`]). It goes on regardless.
    pub escalate_after: u32,
}

impl LoopSettings {
    /// A loop with a name and a maximal interval, reported after 5 panics in a row.
    pub fn new(name: impl Into<String>, max_interval: Duration) -> Self {
        Self {
            name: name.into(),
            max_interval,
            escalate_after: 5,
        }
    }
}

/// The supervisor. Cheap to clone; all clones are one. The loops end when the last one is dropped.
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
    loops: Mutex<BTreeMap<String, Arc<Entry>>>,
    escalated: watch::Sender<Option<String>>,
}

/// What the supervisor and the running loop share.
#[derive(Debug)]
struct Entry {
    settings: LoopSettings,
    wake: Notify,
    status: Mutex<LoopStatus>,
}

impl Entry {
    fn status(&self) -> MutexGuard<'_, LoopStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes one loop, as [`Loops::wake`] does, without a hold on the supervisor: what runs in a loop may have it.
#[derive(Debug, Clone)]
pub struct Waker(Arc<Entry>);

impl Waker {
    /// Lets the loop turn now instead of when it is due.
    pub fn wake(&self) {
        self.0.wake.notify_one();
    }

    /// Work that outlasts the loop's turns has begun or ended; `under_way` tells whether any is left.
    pub(crate) fn progressed(&self, now: Mono, under_way: bool) {
        let mut status = self.0.status();
        (status.finished_at, status.under_way) = (now, under_way);
    }
}

/// Runs work that outlasts a loop's turns, without a hold on the supervisor. A shutdown waits for it.
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

    /// Whether the loops end, so that nothing new must be begun.
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

    /// Starts a loop. `make` makes its body: once now, and once after every panic, so that no half-changed state of a
    /// panicked turn is ever used again. The answer wakes it; it may be dropped.
    ///
    /// # Errors
    /// `Invalid` for a name that is taken or an interval below [`FLOOR`].
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
        let entry = Arc::new(Entry {
            wake: Notify::new(),
            status: Mutex::new(LoopStatus::of(&settings, &*self.inner.clock)),
            settings,
        });
        {
            let mut loops = self.loops();
            if loops.contains_key(&entry.settings.name) {
                return Err(Error::invalid(format!(
                    "there is a loop named {} already",
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

    /// Lets a loop turn now instead of when it is due (not before [`FLOOR`] has passed since its last turn). Wake-ups
    /// coalesce. Does nothing when there is no such loop.
    pub fn wake(&self, name: &str) {
        if let Some(entry) = self.loops().get(name) {
            entry.wake.notify_one();
        }
    }

    /// For what outlasts a turn.
    pub(crate) fn workers(&self) -> Workers {
        Workers {
            runtime: self.inner.runtime.clone(),
            stop: self.inner.stop.clone(),
            tasks: self.inner.tasks.clone(),
        }
    }

    /// Where the loops run.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.inner.runtime
    }

    /// What each loop did so far, by name. No I/O.
    #[must_use]
    pub fn snapshot(&self) -> Vec<LoopStatus> {
        let now = self.inner.clock.mono();
        self.loops()
            .values()
            .map(|entry| entry.status().clone().seen_at(now))
            .collect()
    }

    /// Waits until a loop panicked so often in a row that its owner should know, and names it. The owner of a program
    /// usually exits with an error then, so that whoever runs it starts it afresh.
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

    /// Stops all loops: those asleep at once, those in a turn or with work under way after it. Waits at most `patience`, and answers whether
    /// all of them have ended; what has not ended by then ends with its runtime.
    pub async fn shut_down(&self, patience: Duration) -> bool {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        within(&*self.inner.clock, patience, self.inner.tasks.wait())
            .await
            .is_some()
    }

    fn loops(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Entry>>> {
        self.inner.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
