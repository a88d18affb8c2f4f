//! Lists the groups of the store periodically, without delaying a turn.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_core::clock::{Mono, jitter};
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::id::Group;
use tenure_core::timeout::Timeout;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio_util::task::AbortOnDropHandle;

use super::Inner;

/// Listings take at most one part in this many of the time: a slow listing runs less often.
const SHARE: u32 = 100;
/// The longest pause, as a multiple of the usual one. Resting groups are checked for new events at this rate.
const NEWS: u32 = 6;

/// The periodic listing of groups.
pub(super) struct Discovery {
    ask_at: Mono,
    ask_news_at: Mono,
    asking: Option<PendingListing>,
}

/// A listing in flight. Its answer arrives before the loop is woken; the task may still be running then.
struct PendingListing {
    task: AbortOnDropHandle<()>,
    answer: oneshot::Receiver<Result<GroupListing>>,
}

/// The answer of the store.
struct GroupListing {
    groups: Vec<Group>,
    awake: Vec<Group>,
    took: Duration,
}

impl Discovery {
    pub(super) fn new(now: Mono) -> Self {
        Self {
            ask_at: now,
            ask_news_at: now,
            asking: None,
        }
    }

    /// Handles an arrived answer, and starts the next listing if it is due. Returns the error of an answer that just
    /// arrived.
    pub(super) async fn turn(&mut self, inner: &Arc<Inner>) -> Result<()> {
        let now = inner.clock.mono();
        let answered = match self.asking.as_mut().map(|asking| asking.answer.try_recv()) {
            None | Some(Err(TryRecvError::Empty)) => None,
            Some(Ok(answer)) => {
                self.asking = None;
                Some(answer)
            }
            Some(Err(TryRecvError::Closed)) => Some(Err(unanswered(self.asking.take()).await)),
        };
        if let Some(Ok(told)) = &answered {
            let longest = inner.settings.discover * NEWS;
            self.ask_at = self.ask_at.max(now + (told.took * SHARE).min(longest));
        }
        if self.asking.is_none() && now >= self.ask_at {
            self.ask(inner, now);
        }
        let Some(answered) = answered else { return Ok(()) };
        inner.listed.store(answered.is_ok(), Ordering::Relaxed);
        let told = answered?;
        for group in told.groups {
            inner.name_group(&group, false);
        }
        for group in told.awake {
            inner.name_group(&group, true);
        }
        inner.forget_unnamed();
        Ok(())
    }

    fn ask(&mut self, inner: &Arc<Inner>, now: Mono) {
        let pace = jitter(&*inner.clock, inner.settings.discover, 10);
        let news = now >= self.ask_news_at;
        if news {
            self.ask_news_at = now + pace * NEWS;
        }
        self.ask_at = now + pace;
        let asked = Arc::clone(inner);
        let (tell, answer) = oneshot::channel();
        let task = inner.janitor.workers().spawn(async move {
            // Fails if the loop has ended.
            let _ = tell.send(asked.ask(news).await);
            asked.janitor.wake();
        });
        let task = AbortOnDropHandle::new(task);
        self.asking = Some(PendingListing { task, answer });
    }

    /// The time until the next turn; `None` while a listing is in flight, because the answer wakes the loop.
    pub(super) fn next(&self, now: Mono) -> Option<Duration> {
        self.asking.is_none().then(|| self.ask_at.since(now))
    }
}

impl Inner {
    async fn ask(self: &Arc<Self>, news: bool) -> Result<GroupListing> {
        let began = self.clock.mono();
        let bound = Timeout::read(self.settings.give_up);
        let groups = bound.call(&*self.clock, "the store", self.store.groups()).await?;
        let awake = if news { self.awake().await? } else { Vec::new() };
        Ok(GroupListing {
            groups,
            awake,
            took: self.clock.mono().since(began),
        })
    }
}

/// Why there is no answer: the task panicked, in which case the panic is propagated, or the loops are stopping.
async fn unanswered(asking: Option<PendingListing>) -> Error {
    let stopped = Error::unavailable("the loops are stopping", Outcome::Unchanged);
    match asking.map(|asking| asking.task) {
        Some(task) => match task.await.map_err(|error| error.try_into_panic()) {
            Err(Ok(panic)) => resume_unwind(panic),
            Err(Err(error)) => stopped.because(error),
            Ok(()) => stopped,
        },
        None => stopped,
    }
}
