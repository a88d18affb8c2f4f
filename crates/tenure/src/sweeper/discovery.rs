//! Asks the store which groups there are, and in which of them something is due soon, without delaying a turn.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_core::clock::{Mono, jitter};
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::id::Group;
use tenure_core::pulse::{DueGroups, VISITS_APART};
use tenure_core::store::{MAX_PAGE, is_probe};
use tenure_core::time::StoreTime;
use tenure_core::timeout::Timeout;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio_util::task::AbortOnDropHandle;

use super::Inner;

/// Listings take at most one part in this many of the time: a slow listing runs less often.
const SHARE: u32 = 100;
/// The longest pause after a slow listing, as a multiple of the usual one. Where the index of due groups is complete,
/// that is the usual one.
const RARE: u32 = 20;
/// How often the store is asked for due groups. The shortest time between a step and what it makes due is 250 ms.
const DUE_EVERY: Duration = Duration::from_millis(200);
/// How far ahead: a process sees a due time at least this long before, if it is that far in the future.
const AHEAD: Duration = Duration::from_secs(2);
/// A group that stays due is visited this often: what is due may be the work of the reaper or the ledger.
const AGAIN: Duration = Duration::from_millis(400);

/// A question that is asked again and again.
struct Asked<T> {
    ask_at: Mono,
    asking: Option<Pending<T>>,
}

/// A question in flight. Its answer arrives before the loop is woken; the task may still be running then.
struct Pending<T> {
    task: AbortOnDropHandle<()>,
    answer: oneshot::Receiver<(Result<T>, Duration)>,
}

impl<T: Send + 'static> Asked<T> {
    fn new(now: Mono) -> Self {
        Self {
            ask_at: now,
            asking: None,
        }
    }

    /// The answer that just arrived, and how long it took.
    async fn answered(&mut self) -> Option<(Result<T>, Duration)> {
        match self.asking.as_mut()?.answer.try_recv() {
            Err(TryRecvError::Empty) => None,
            Ok(answer) => {
                self.asking = None;
                Some(answer)
            }
            Err(TryRecvError::Closed) => {
                let pending = self.asking.take()?;
                Some((Err(unanswered(pending.task).await), Duration::ZERO))
            }
        }
    }

    fn ask(
        &mut self,
        inner: &Arc<Inner>,
        now: Mono,
        pace: Duration,
        ask: impl Future<Output = Result<T>> + Send + 'static,
    ) {
        self.ask_at = now + jitter(&*inner.clock, pace, 10);
        let (tell, answer) = oneshot::channel();
        let asked = Arc::clone(inner);
        let task = inner.janitor.workers().spawn(async move {
            let bound = Timeout::read(asked.settings.give_up);
            let told = bound.call(&*asked.clock, "the store", ask).await;
            // Fails if the loop has ended.
            let _ = tell.send((told, asked.clock.mono().since(now)));
            asked.janitor.wake();
        });
        let task = AbortOnDropHandle::new(task);
        self.asking = Some(Pending { task, answer });
    }

    /// The time until the next question; `None` while one is in flight, because the answer wakes the loop.
    fn next(&self, now: Mono) -> Option<Duration> {
        self.asking.is_none().then(|| self.ask_at.since(now))
    }
}

/// The questions of a sweeper.
pub(super) struct Discovery {
    groups: Asked<Vec<Group>>,
    due: Asked<DueGroups>,
    /// Whether the store's index of due groups is complete; `None` before the first answer.
    is_complete: Option<bool>,
    /// When the store last resumed after a hole of its pulse, as far as is known.
    resumed_at: Option<StoreTime>,
}

impl Discovery {
    pub(super) fn new(now: Mono) -> Self {
        Self {
            groups: Asked::new(now),
            due: Asked::new(now),
            is_complete: None,
            resumed_at: None,
        }
    }

    /// Handles answers, and asks again when it is time. Returns the error of an answer that just arrived.
    pub(super) async fn turn(&mut self, inner: &Arc<Inner>) -> Result<()> {
        let due = self.turn_due(inner).await;
        let groups = self.turn_groups(inner).await;
        groups.and(due)
    }

    async fn turn_groups(&mut self, inner: &Arc<Inner>) -> Result<()> {
        let (now, answered) = (inner.clock.mono(), self.groups.answered().await);
        let longest = inner.settings.discover * RARE;
        if let Some((_, took)) = &answered {
            self.groups.ask_at = self.groups.ask_at.max(now + (*took * SHARE).min(longest));
        }
        // What a listed group needs depends on the index.
        let Some(is_complete) = self.is_complete else {
            return Ok(());
        };
        if self.groups.asking.is_none() && now >= self.groups.ask_at {
            let pace = if is_complete { longest } else { inner.settings.discover };
            let store = Arc::clone(&inner.store);
            self.groups.ask(inner, now, pace, async move { store.groups().await });
        }
        let Some((answered, _)) = answered else { return Ok(()) };
        inner.listed.store(answered.is_ok(), Ordering::Relaxed);
        let listed = answered?;
        // Where the index is not enough, every group must be ticked in time.
        let spread = match is_complete {
            true => VISITS_APART,
            false => Duration::ZERO,
        };
        let mut visit_at = now;
        for group in listed {
            if inner.name_group(&group, visit_at) {
                visit_at = visit_at + spread;
            }
        }
        inner.forget_unnamed();
        Ok(())
    }

    async fn turn_due(&mut self, inner: &Arc<Inner>) -> Result<()> {
        let (now, answered) = (inner.clock.mono(), self.due.answered().await);
        if self.due.asking.is_none() && now >= self.due.ask_at {
            let store = Arc::clone(&inner.store);
            self.due
                .ask(inner, now, DUE_EVERY, async move { store.due(AHEAD, MAX_PAGE).await });
        }
        let Some((answered, _)) = answered else { return Ok(()) };
        if answered.is_err() {
            self.is_complete.get_or_insert(false);
        }
        let told = answered?;
        // With a pulse, an index that is not complete is a new one; the first answer precedes the first listing.
        let is_lost = self.is_complete == Some(true) || self.is_complete.is_some() && told.resumed_at.is_some();
        if is_lost && !told.is_complete {
            // Every visit puts its group back.
            inner.visit_all();
            self.groups.ask_at = now;
        } else if self.resumed_at.is_some() && self.resumed_at < told.resumed_at {
            // Their members live longer, and readers are to learn that soon.
            inner.visit_occupied();
        }
        self.resumed_at = told.resumed_at;
        self.is_complete = Some(told.is_complete);
        for (group, at) in told.groups.iter().filter(|(group, _)| !is_probe(group)) {
            let again = inner.visited_at(group).map_or(now, |visited| visited + AGAIN);
            let due_at = match *at <= told.as_of {
                true => again.max(now),
                false => now + at.since(told.as_of),
            };
            inner.name_due(group, due_at);
        }
        Ok(())
    }

    /// The time until the next turn; `None` while everything is asked.
    pub(super) fn next(&self, now: Mono) -> Option<Duration> {
        let groups = self.is_complete.and_then(|_| self.groups.next(now));
        groups.into_iter().chain(self.due.next(now)).min()
    }
}

/// Why there is no answer: the task panicked, in which case the panic is propagated, or the loops are stopping.
async fn unanswered(task: AbortOnDropHandle<()>) -> Error {
    let stopped = Error::unavailable("the loops are stopping", Outcome::Unchanged);
    match task.await.map_err(|error| error.try_into_panic()) {
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(error)) => stopped.because(error),
        Ok(()) => stopped,
    }
}
