//! Limits on reads of the ledger that replace reads of the mirror.
//!
//! When the mirror fails, every read of a fleet moves to the ledger at the same moment. Without limits the reads take
//! every connection of its pool, writes queue behind them, and an outage of the fast store becomes one of the durable
//! store. So a read has four limits:
//!
//! - **a deadline** ([`Settings::timeout`]) for the whole read; it may queue for three quarters of that time;
//! - **a limit** on running reads ([`Settings::concurrency`]) and on queued ones ([`Settings::waiting`]); beyond it a
//!   read fails immediately;
//! - **request coalescing**: equal reads share one call and its result, including an error. A caller that must see its
//!   own write takes a [`Moment`] when the write was acknowledged, and joins no call that began before it;
//! - **a circuit breaker** ([`breaker`]): a ledger that does not serve gets one probe per pause and nothing else.
//!
//! A read that cannot be answered fails with `Unavailable`, with nothing changed and a time to retry.
//!
//! A call runs in its own task: a caller that goes away does not affect others that wait for the same result, and a
//! panic in the call is an error for its callers only.

pub(crate) mod breaker;
mod in_flight;
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

use self::breaker::{Breaker, BreakerDecision, BreakerState};
use self::in_flight::{InFlightRead, SharedRead};
use crate::error_copy::copy_of;

/// The limits of the fallback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The deadline of a read, queueing included. A longer one rides out longer stalls, but makes clients wait
    /// longer during an outage.
    pub(crate) timeout: Duration,
    /// How many reads run at the same time. Fewer than the ledger's pool has connections: writes need the rest.
    pub(crate) concurrency: usize,
    /// How many calls may be queued, equal ones counted once; more fail immediately. A call that can run right away
    /// counts as queued for a moment.
    pub(crate) waiting: usize,
    /// The breaker opens after this many failures in a row.
    pub(crate) failures: u32,
    /// How long it stays open, ±20 %, before a read probes the ledger.
    pub(crate) pause: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_millis(500),
            // Half of the default pool of the ledger on Postgres, which has 16 connections.
            concurrency: 8,
            waiting: 8_192,
            failures: 5,
            pause: Duration::from_secs(1),
        }
    }
}

impl Settings {
    /// Rejects settings that cannot work.
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
                "the fallback's {name} is 0; it must be greater than 0"
            )));
        }
        if self.concurrency > Semaphore::MAX_PERMITS {
            return Err(misconfigured(format!(
                "the fallback's concurrency {} is too large; use a smaller number",
                self.concurrency
            )));
        }
        Ok(())
    }
}

fn misconfigured(message: String) -> Error {
    Error::new(ErrorKind::Misconfigured, message)
}

/// A moment of this process, taken when a write was acknowledged: a read can be required to begin after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

/// The state of the guard, for metrics and `readyz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    /// The state of the breaker.
    pub(crate) breaker: BreakerState,
    /// Calls in flight.
    pub(crate) running: usize,
    /// Queued calls.
    pub(crate) waiting: usize,
    /// How often the breaker has opened.
    pub(crate) opened: u64,
    /// Reads refused by the open breaker.
    pub(crate) refused: u64,
    /// Reads refused because the queue was full, or timed out in the queue.
    pub(crate) overloaded: u64,
}

/// The limits that all reads of one ledger share. Clones share state.
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
    moments: AtomicU64,
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
            moments: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            overloaded: AtomicU64::new(0),
            clock,
            runtime,
            settings,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Reads of one kind: equal keys mean equal results. All kinds share the limits.
    #[must_use]
    pub(crate) fn reads<K: Ord + Clone, V>(&self) -> Reads<K, V> {
        Reads {
            guard: Arc::clone(&self.inner),
            table: Arc::default(),
        }
    }

    /// The current moment. Take it when a write is acknowledged, or before a read that must not return older data.
    #[must_use]
    pub(crate) fn moment(&self) -> Moment {
        self.inner.moment()
    }

    /// The current state. No I/O, O(1).
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
    fn moment(&self) -> Moment {
        Moment(self.moments.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of the next probe if the breaker opens now.
    fn next_probe(&self) -> Mono {
        self.clock.mono() + jitter(&*self.clock, self.settings.pause, 20)
    }

    /// The error of a read that the open breaker refuses.
    fn refuse(&self, until: Mono) -> Error {
        self.refused.fetch_add(1, Ordering::Relaxed);
        // While a probe is in flight, its result is due within a timeout.
        let left = until.since(self.clock.mono());
        let retry_after = if left.is_zero() { self.settings.timeout } else { left };
        Error::unavailable(
            "the ledger is unavailable, and reads of it are paused; retry later",
            Outcome::Unchanged,
        )
        .with_retry_after(retry_after)
    }

    /// The error of a read that exceeds a limit.
    fn shed(&self, message: &'static str) -> Error {
        self.overloaded.fetch_add(1, Ordering::Relaxed);
        let retry_after = jitter(&*self.clock, self.settings.timeout, 50);
        Error::unavailable(message, Outcome::Unchanged).with_retry_after(retry_after)
    }
}

/// Reads of one kind through a [`Guard`]. Clones share state.
pub(crate) struct Reads<K: Ord + Clone, V> {
    guard: Arc<Inner>,
    table: Arc<Table<K, V>>,
}

/// The newest call in flight for each key. O(queued and running keys).
type Table<K, V> = Mutex<BTreeMap<K, SharedRead<V>>>;

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
    /// Reads, or shares the result of an equal read in flight; with `after`, only of one that began after that moment.
    /// `work` is called only if a new call is made, and dropped at the deadline. Cancel safe. The guard's runtime must
    /// be running. O(log keys) besides the work.
    ///
    /// # Errors
    /// Those of `work`, `Unavailable` among them; `Unavailable` with `Unchanged` and a `retry_after` on a time-out, a
    /// full queue or an open breaker; `Internal` when `work` panicked.
    pub(crate) async fn read<F, W>(&self, key: K, after: Option<Moment>, work: W) -> Result<V>
    where
        W: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<V>> + Send + 'static,
    {
        let answer = self.join_or_start(key, after, work)?.answer();
        match &*answer.await {
            Ok(value) => Ok(value.clone()),
            Err(error) => Err(copy_of(error)),
        }
    }

    /// Joins a call in flight or starts one.
    fn join_or_start<F, W>(&self, key: K, after: Option<Moment>, work: W) -> Result<SharedRead<V>>
    where
        W: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<V>> + Send + 'static,
    {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = table.get(&key).filter(|known| known.may_be_joined(after)) {
            return Ok(known.clone());
        }
        let guard = &self.guard;
        let decision = guard.breaker().check(guard.clock.mono());
        if let BreakerDecision::Refused { until } = decision {
            return Err(guard.refuse(until));
        }
        if guard.waiting.fetch_add(1, Ordering::Relaxed) >= guard.settings.waiting {
            guard.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(guard.shed("too many reads are queued for the ledger; retry later"));
        }
        let (read, shared) = InFlightRead::new(Arc::clone(guard), Arc::clone(&self.table), key.clone());
        table.insert(key, shared.clone());
        drop(table);
        // Not under the lock: a runtime that has ended drops the call immediately, and the drop takes the lock.
        drop(guard.runtime.spawn(read.run(work)));
        Ok(shared)
    }
}
