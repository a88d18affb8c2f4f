//! One call under way, and what those who wait for it hold.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use tenure_core::clock::{Mono, within};
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tokio::sync::watch;

use super::breaker::{Shift, Ticket};
use super::{Inner, Mark, Table};

/// In place of the mark of a call that has not begun.
const NOT_BEGUN: u64 = u64::MAX;

/// An answer, once it is there; one for all.
type Answer<V> = Option<Arc<Result<V>>>;

/// A place among those who wait for one answer.
pub(super) struct Shared<V> {
    /// The last mark that was taken before the call began.
    began: Arc<AtomicU64>,
    answer: watch::Receiver<Answer<V>>,
}

impl<V> Clone for Shared<V> {
    fn clone(&self) -> Self {
        Self {
            began: Arc::clone(&self.began),
            answer: self.answer.clone(),
        }
    }
}

impl<V> Shared<V> {
    /// Whether the answer will be no older than `after`.
    ///
    /// The mark was taken before this is asked, and a call says that it begins before it does: what is not begun here
    /// begins later than the mark.
    pub(super) fn may_be_joined(&self, after: Option<Mark>) -> bool {
        let began = self.began.load(Ordering::SeqCst);
        after.is_none_or(|Mark(mark)| mark <= began)
    }

    /// Waits for the answer.
    pub(super) async fn answer(mut self) -> Arc<Result<V>> {
        let answer = self.answer.wait_for(Option::is_some).await;
        let answer = answer.ok().and_then(|answer| answer.clone());
        answer.unwrap_or_else(|| {
            Arc::new(Err(Error::unavailable(
                "a read of the ledger was given up; its runtime has ended",
                Outcome::Unchanged,
            )))
        })
    }
}

/// A call; it counts as waiting and as under way until it is dropped, however that happens.
pub(super) struct Flight<K: Ord, V> {
    guard: Arc<Inner>,
    table: Arc<Table<K, V>>,
    key: K,
    began: Arc<AtomicU64>,
    answer: watch::Sender<Answer<V>>,
    is_waiting: bool,
    deadline: Mono,
}

impl<K: Ord, V> Drop for Flight<K, V> {
    fn drop(&mut self) {
        self.wait_no_more();
        self.leave_the_table();
    }
}

impl<K: Ord, V> Flight<K, V> {
    /// A flight that counts as waiting already.
    pub(super) fn new(guard: Arc<Inner>, table: Arc<Table<K, V>>, key: K) -> (Self, Shared<V>) {
        let began = Arc::new(AtomicU64::new(NOT_BEGUN));
        let (sender, receiver) = watch::channel(None);
        let shared = Shared {
            began: Arc::clone(&began),
            answer: receiver,
        };
        let deadline = guard.clock.mono() + guard.settings.timeout;
        let flight = Self {
            guard,
            table,
            key,
            began,
            answer: sender,
            is_waiting: true,
            deadline,
        };
        (flight, shared)
    }

    /// Waits for its turn, calls, and answers everyone.
    pub(super) async fn fly<F, W>(mut self, work: W)
    where
        W: FnOnce() -> F,
        F: Future<Output = Result<V>>,
    {
        let answer = self.call(work).await;
        // Nobody joins any more when the answer is there: who comes now wants a newer one.
        self.leave_the_table();
        self.answer.send_replace(Some(Arc::new(answer)));
    }

    async fn call<F, W>(&mut self, work: W) -> Result<V>
    where
        W: FnOnce() -> F,
        F: Future<Output = Result<V>>,
    {
        let guard = Arc::clone(&self.guard);
        let clock = &*guard.clock;
        // A call keeps a quarter of the time at least, or those who waited longest would all be sent in vain, and their
        // haste would pass for a ledger that does not answer.
        let reserved = guard.settings.timeout / 4;
        let patience = self.deadline.since(clock.mono() + reserved);
        let permit = within(clock, patience, Arc::clone(&guard.permits).acquire_owned()).await;
        self.wait_no_more();
        let Some(Ok(_permit)) = permit else {
            return Err(guard.shed("the ledger has more reads than it can answer in time"));
        };
        let pass = Pass::take(&guard)?;
        self.began.store(guard.marks.load(Ordering::SeqCst), Ordering::SeqCst);
        let left = self.deadline.since(clock.mono());
        let called = within(clock, left, async { work().await });
        match AssertUnwindSafe(called).catch_unwind().await {
            Ok(Some(Err(error))) if error.is_unavailable() => {
                pass.failed(&error);
                Err(error)
            }
            Ok(Some(answer)) => {
                pass.answered();
                answer
            }
            Ok(None) => {
                let error = Error::unavailable("the ledger did not answer in time", Outcome::Unchanged)
                    .with_retry_after(guard.settings.timeout);
                pass.failed(&error);
                Err(error)
            }
            // What it has said by its panic is nothing about the ledger: the pass is dropped.
            Err(_) => Err(Error::new(
                ErrorKind::Internal,
                "a read of the ledger panicked; please report it",
            )),
        }
    }

    fn wait_no_more(&mut self) {
        if std::mem::take(&mut self.is_waiting) {
            self.guard.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Frees its key, unless a newer call has it.
    fn leave_the_table(&self) {
        let mut table = self.table.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_mine = |shared: &Shared<V>| Arc::ptr_eq(&shared.began, &self.began);
        if table.get(&self.key).is_some_and(is_mine) {
            table.remove(&self.key);
        }
    }
}

/// The breaker's leave for one call. Dropped without a word, it says that there was none.
struct Pass<'a> {
    guard: &'a Inner,
    ticket: Option<Ticket>,
}

impl<'a> Pass<'a> {
    fn take(guard: &'a Inner) -> Result<Self> {
        let admitted = guard.breaker().admit(guard.clock.mono());
        let ticket = Some(admitted.map_err(|until| guard.refuse(until))?);
        Ok(Self { guard, ticket })
    }

    fn answered(mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        if self.guard.breaker().answered(ticket) == Shift::Closed {
            tracing::info!("the ledger answers again");
        }
    }

    fn failed(mut self, error: &Error) {
        let Some(ticket) = self.ticket.take() else { return };
        let until = self.guard.next_probe();
        if self.guard.breaker().failed(ticket, until) == Shift::Opened {
            tracing::warn!(
                error = error.chain(),
                "the ledger does not serve; reads leave it alone, but for a probe now and then"
            );
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let until = self.guard.next_probe();
            self.guard.breaker().broke_off(ticket, until);
        }
    }
}
