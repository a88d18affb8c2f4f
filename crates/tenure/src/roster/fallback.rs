//! The guard of the fallback: reads of the ledger while the mirror is away, as many as the ledger can bear.
//!
//! When the mirror goes, every read of a fleet turns to the ledger in one moment. Without a bound they take every
//! connection of its pool, writes wait behind them, and an outage of the fast store becomes one of the durable store. So
//! a read here is bounded four times:
//!
//! - **a deadline** ([`Settings::timeout`]) for the whole of it, of which it may wait three quarters;
//! - **a limit** on how many run at once ([`Settings::concurrency`]) and how many wait for that ([`Settings::waiting`]);
//!   beyond it a read fails at once;
//! - **one flight** for equal reads: they share one call and its answer, and an error as well. Who must see what he has
//!   written takes a [`Mark`] when that was acknowledged, and joins no call that began before it;
//! - **a breaker** ([`breaker`]): a ledger that does not serve is left alone, but for one probe a pause.
//!
//! What cannot be answered is refused as `Unavailable`, with nothing changed and a time to try again.
//!
//! A call runs in a task of its own: a caller who goes away takes nothing from those who wait for the same answer, and a
//! call that panics is an error for them.

pub(crate) mod breaker;
mod flight;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::{Clock, Mono, jitter};
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use self::breaker::{Breaker, BreakerState, Turn};
use self::flight::{Flight, Shared};
use crate::error_copy::copy_of;

/// How much of the ledger the fallback may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// How long a read may take, waiting included. Longer rides out longer hiccups, and lets clients wait for nothing.
    pub(crate) timeout: Duration,
    /// How many reads run at once. Fewer than the ledger's pool has connections: writes need the rest.
    pub(crate) concurrency: usize,
    /// How many reads wait for their turn, equal ones counted once; more are refused at once. Those that find it free
    /// count as well, for a moment.
    pub(crate) waiting: usize,
    /// After how many failures in a row the ledger is left alone.
    pub(crate) failures: u32,
    /// For how long, ±20 %, before one read probes it.
    pub(crate) pause: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_millis(500),
            // Half of the 16 connections that the ledger on Postgres has unless it is told otherwise.
            concurrency: 8,
            waiting: 8_192,
            failures: 5,
            pause: Duration::from_secs(1),
        }
    }
}

impl Settings {
    /// Refuses what cannot work.
    ///
    /// # Errors
    /// `Misconfigured`, naming the setting.
    fn check(&self) -> Result<()> {
        let zero = [
            ("timeout", self.timeout.is_zero()),
            ("concurrency", self.concurrency == 0),
            ("waiting", self.waiting == 0),
            ("failures", self.failures == 0),
            ("pause", self.pause.is_zero()),
        ];
        if let Some((name, _)) = zero.iter().find(|(_, zero)| *zero) {
            return Err(misconfigured(format!(
                "the fallback's {name} is 0, so nothing would be read"
            )));
        }
        if self.concurrency > Semaphore::MAX_PERMITS {
            return Err(misconfigured(format!(
                "the fallback's concurrency {} is too large",
                self.concurrency
            )));
        }
        Ok(())
    }
}

fn misconfigured(message: String) -> Error {
    Error::new(ErrorKind::Misconfigured, message)
}

/// A moment, for reads that must have begun after it: taken when a write was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark(u64);

/// How the guard stands, for metrics, `readyz` and people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    /// Whether the ledger is read.
    pub(crate) breaker: BreakerState,
    /// Calls under way.
    pub(crate) running: usize,
    /// Calls that wait for their turn.
    pub(crate) waiting: usize,
    /// How often the breaker has opened.
    pub(crate) opened: u64,
    /// Reads that were refused because the ledger is left alone.
    pub(crate) refused: u64,
    /// Reads that were refused because too many waited, or that waited in vain.
    pub(crate) overloaded: u64,
}

/// What all reads of one ledger share. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(crate) struct Guard {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    runtime: Handle,
    settings: Settings,
    permits: Arc<Semaphore>,
    breaker: Mutex<Breaker>,
    waiting: AtomicUsize,
    marks: AtomicU64,
    refused: AtomicU64,
    overloaded: AtomicU64,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

impl Guard {
    /// A guard whose calls run on `runtime`.
    ///
    /// # Errors
    /// `Misconfigured`, naming the setting.
    pub(crate) fn new(clock: Arc<dyn Clock>, runtime: Handle, settings: Settings) -> Result<Self> {
        settings.check()?;
        let inner = Inner {
            permits: Arc::new(Semaphore::new(settings.concurrency)),
            breaker: Mutex::new(Breaker::new(settings.failures)),
            waiting: AtomicUsize::new(0),
            marks: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            overloaded: AtomicU64::new(0),
            clock,
            runtime,
            settings,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// One kind of reads: equal keys ask for equal answers. All kinds share the limits.
    #[must_use]
    pub(crate) fn reads<K: Ord + Clone, V>(&self) -> Reads<K, V> {
        Reads {
            guard: Arc::clone(&self.inner),
            table: Arc::default(),
        }
    }

    /// This moment. Take it when a write is acknowledged, or when a read is asked for that must not be older than itself.
    #[must_use]
    pub(crate) fn mark(&self) -> Mark {
        self.inner.mark()
    }

    /// How it stands. No I/O, O(1).
    #[must_use]
    pub(crate) fn status(&self) -> Status {
        let inner = &self.inner;
        let breaker = inner.breaker();
        Status {
            breaker: breaker.state(inner.clock.mono()),
            opened: breaker.opened(),
            running: inner
                .settings
                .concurrency
                .saturating_sub(inner.permits.available_permits()),
            waiting: inner.waiting.load(Ordering::Relaxed),
            refused: inner.refused.load(Ordering::Relaxed),
            overloaded: inner.overloaded.load(Ordering::Relaxed),
        }
    }
}

impl Inner {
    fn mark(&self) -> Mark {
        Mark(self.marks.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of the next probe, should the breaker open now.
    fn next_probe(&self) -> Mono {
        self.clock.mono() + jitter(&*self.clock, self.settings.pause, 20)
    }

    /// Refuses a read because the ledger is left alone.
    fn refuse(&self, until: Mono) -> Error {
        self.refused.fetch_add(1, Ordering::Relaxed);
        // While a probe is under way, its answer is due within a timeout.
        let left = until.since(self.clock.mono());
        let retry_after = if left.is_zero() { self.settings.timeout } else { left };
        Error::unavailable(
            "the ledger did not serve lately and is left alone for a moment",
            Outcome::Unchanged,
        )
        .with_retry_after(retry_after)
    }

    /// Refuses a read because there are too many.
    fn shed(&self, message: &'static str) -> Error {
        self.overloaded.fetch_add(1, Ordering::Relaxed);
        let retry_after = jitter(&*self.clock, self.settings.timeout, 50);
        Error::unavailable(message, Outcome::Unchanged).with_retry_after(retry_after)
    }
}

/// One kind of reads through a [`Guard`]. Cheap to clone; all clones are one.
pub(crate) struct Reads<K: Ord + Clone, V> {
    guard: Arc<Inner>,
    table: Arc<Table<K, V>>,
}

/// The call that an equal read would join, for each key under way. O(keys waiting or running).
type Table<K, V> = Mutex<BTreeMap<K, Shared<V>>>;

impl<K: Ord + Clone, V> Clone for Reads<K, V> {
    fn clone(&self) -> Self {
        Self {
            guard: Arc::clone(&self.guard),
            table: Arc::clone(&self.table),
        }
    }
}

impl<K, V> Reads<K, V>
where
    K: Ord + Clone + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Reads, or shares the answer of an equal read that has not ended yet; with `after`, only of one that has not begun
    /// before that. `work` is called only when a call is made for it, and dropped at the deadline. Cancel safe. Must be
    /// called with the guard's runtime alive. O(log keys) besides the work.
    ///
    /// # Errors
    /// Those of `work`, `Unavailable` among them; `Unavailable` with `Unchanged` and a `retry_after` when it did not
    /// answer in time, when too many reads wait, and while the ledger is left alone; `Internal` when it panicked.
    pub(crate) async fn read<F, W>(&self, key: K, after: Option<Mark>, work: W) -> Result<V>
    where
        W: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<V>> + Send + 'static,
    {
        let answer = self.board(key, after, work)?.answer();
        match &*answer.await {
            Ok(value) => Ok(value.clone()),
            Err(error) => Err(copy_of(error)),
        }
    }

    /// Joins a call or begins one.
    fn board<F, W>(&self, key: K, after: Option<Mark>, work: W) -> Result<Shared<V>>
    where
        W: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<V>> + Send + 'static,
    {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = table.get(&key).filter(|known| known.may_be_joined(after)) {
            return Ok(known.clone());
        }
        let guard = &self.guard;
        let turn = guard.breaker().turn(guard.clock.mono());
        if let Turn::Refused { until } = turn {
            return Err(guard.refuse(until));
        }
        if guard.waiting.fetch_add(1, Ordering::Relaxed) >= guard.settings.waiting {
            guard.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(guard.shed("too many reads wait for the ledger"));
        }
        let (flight, shared) = Flight::new(Arc::clone(guard), Arc::clone(&self.table), key.clone());
        table.insert(key, shared.clone());
        drop(table);
        // Not under the lock: a runtime that has ended drops the flight at once, which takes it.
        drop(guard.runtime.spawn(flight.fly(work)));
        Ok(shared)
    }
}
