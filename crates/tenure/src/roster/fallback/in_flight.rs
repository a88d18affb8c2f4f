//! One call in flight, and the result that its callers share.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use tenure_core::clock::{Mono, within};
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tokio::sync::watch;

use super::breaker::{Ticket, Transition};
use super::{Inner, Moment, Table};

/// The moment of a call that has not begun.
const NOT_BEGUN: u64 = u64::MAX;

/// The result of a call, once it is there.
type SharedResult<V> = Option<Arc<Result<V>>>;

/// A caller's share in a call.
pub(super) struct SharedRead<V> {
    /// The last moment taken before the call began.
    began: Arc<AtomicU64>,
    answer: watch::Receiver<SharedResult<V>>,
}

impl<V> Clone for SharedRead<V> {
    fn clone(&self) -> Self {
        Self {
            began: Arc::clone(&self.began),
            answer: self.answer.clone(),
        }
    }
}

impl<V> SharedRead<V> {
    /// Whether the result will be no older than `after`.
    ///
    /// `after` was taken before this check, and a call stores its beginning before it runs. So a call that has not
    /// begun yet begins later than `after`.
    pub(super) fn may_be_joined(&self, after: Option<Moment>) -> bool {
        let began = self.began.load(Ordering::SeqCst);
        after.is_none_or(|Moment(moment)| moment <= began)
    }

    /// Waits for the result.
    pub(super) async fn answer(mut self) -> Arc<Result<V>> {
        let answer = self.answer.wait_for(Option::is_some).await;
        let answer = answer.ok().and_then(|answer| answer.clone());
        answer.unwrap_or_else(|| {
            Arc::new(Err(Error::unavailable(
                "a read of the ledger was dropped: its runtime has shut down",
                Outcome::Unchanged,
            )))
        })
    }
}

/// A call. Until it is dropped, for whatever reason, it counts as queued or running and keeps its key.
pub(super) struct InFlightRead<K: Ord, V> {
    guard: Arc<Inner>,
    table: Arc<Table<K, V>>,
    key: K,
    began: Arc<AtomicU64>,
    answer: watch::Sender<SharedResult<V>>,
    is_waiting: bool,
    deadline: Mono,
}

impl<K: Ord, V> Drop for InFlightRead<K, V> {
    fn drop(&mut self) {
        self.stop_waiting();
        self.remove_from_table();
    }
}

impl<K: Ord, V> InFlightRead<K, V> {
    /// A call that counts as queued already.
    pub(super) fn new(guard: Arc<Inner>, table: Arc<Table<K, V>>, key: K) -> (Self, SharedRead<V>) {
        let began = Arc::new(AtomicU64::new(NOT_BEGUN));
        let (sender, receiver) = watch::channel(None);
        let shared = SharedRead {
            began: Arc::clone(&began),
            answer: receiver,
        };
        let deadline = guard.clock.mono() + guard.settings.timeout;
        let read = Self {
            guard,
            table,
            key,
            began,
            answer: sender,
            is_waiting: true,
            deadline,
        };
        (read, shared)
    }

    /// Waits for a permit, runs the call and delivers the result.
    pub(super) async fn run<F, W>(mut self, work: W)
    where
        W: FnOnce() -> F,
        F: Future<Output = Result<V>>,
    {
        let answer = self.call(work).await;
        // Before the result is delivered: a later caller needs a newer result.
        self.remove_from_table();
        self.answer.send_replace(Some(Arc::new(answer)));
    }

    async fn call<F, W>(&mut self, work: W) -> Result<V>
    where
        W: FnOnce() -> F,
        F: Future<Output = Result<V>>,
    {
        let guard = Arc::clone(&self.guard);
        let clock = &*guard.clock;
        // A quarter of the time is reserved for the call itself. Otherwise the calls that queued longest would all time
        // out, and count as failures of the ledger.
        let reserved = guard.settings.timeout / 4;
        let patience = self.deadline.since(clock.mono() + reserved);
        let permit = within(clock, patience, Arc::clone(&guard.permits).acquire_owned()).await;
        self.stop_waiting();
        let Some(Ok(_permit)) = permit else {
            return Err(guard.shed(
                "the read timed out in the queue: the ledger has more reads than it can answer in time; retry later",
            ));
        };
        let breaker_permit = BreakerPermit::take(&guard)?;
        self.began.store(guard.moments.load(Ordering::SeqCst), Ordering::SeqCst);
        let left = self.deadline.since(clock.mono());
        let called = within(clock, left, async { work().await });
        match AssertUnwindSafe(called).catch_unwind().await {
            Ok(Some(Err(error))) if error.is_unavailable() => {
                breaker_permit.failed(&error);
                Err(error)
            }
            Ok(Some(answer)) => {
                breaker_permit.answered();
                answer
            }
            Ok(None) => {
                let error = Error::unavailable("the ledger did not answer in time", Outcome::Unchanged)
                    .with_retry_after(guard.settings.timeout);
                breaker_permit.failed(&error);
                Err(error)
            }
            // A panic says nothing about the ledger: the breaker permit is dropped.
            Err(_) => Err(Error::new(
                ErrorKind::Internal,
                "a read of the ledger panicked; please report it",
            )),
        }
    }

    fn stop_waiting(&mut self) {
        if std::mem::take(&mut self.is_waiting) {
            self.guard.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Frees the key, unless a newer call has it.
    fn remove_from_table(&self) {
        let mut table = self.table.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_mine = |shared: &SharedRead<V>| Arc::ptr_eq(&shared.began, &self.began);
        if table.get(&self.key).is_some_and(is_mine) {
            table.remove(&self.key);
        }
    }
}

/// The breaker's permit for one call. Dropped without a result, it reports none.
struct BreakerPermit<'a> {
    guard: &'a Inner,
    ticket: Option<Ticket>,
}

impl<'a> BreakerPermit<'a> {
    fn take(guard: &'a Inner) -> Result<Self> {
        let admitted = guard.breaker().admit(guard.clock.mono());
        let ticket = Some(admitted.map_err(|until| guard.refuse(until))?);
        Ok(Self { guard, ticket })
    }

    fn answered(mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        if self.guard.breaker().answered(ticket) == Transition::Closed {
            tracing::info!("the ledger answers again");
        }
    }

    fn failed(mut self, error: &Error) {
        let Some(ticket) = self.ticket.take() else { return };
        let until = self.guard.next_probe();
        if self.guard.breaker().failed(ticket, until) == Transition::Opened {
            tracing::warn!(
                error = error.chain(),
                "the ledger does not serve; reads of it are paused except for probes"
            );
        }
    }
}

impl Drop for BreakerPermit<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let until = self.guard.next_probe();
            self.guard.breaker().abandoned(ticket, until);
        }
    }
}
