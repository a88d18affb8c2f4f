//! Which groups the store has, asked now and then without holding up a turn.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_core::clock::{Mono, jitter, within};
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::id::Group;
use tokio_util::task::AbortOnDropHandle;

use super::Inner;
use crate::membership::in_time;

/// The question for the groups of a store.
pub(super) struct Discovery {
    ask_at: Mono,
    asking: Option<AbortOnDropHandle<Result<Vec<Group>>>>,
}

impl Discovery {
    pub(super) fn new(now: Mono) -> Self {
        Self {
            ask_at: now,
            asking: None,
        }
    }

    /// Takes the answer if it has come, and asks again if it is time. The error is that of an answer that came just now.
    pub(super) async fn turn(&mut self, inner: &Arc<Inner>) -> Result<()> {
        let now = inner.clock.mono();
        let answered = match self.asking.take_if(|asking| asking.is_finished()) {
            Some(asking) => Some(unwrapped(asking.await)),
            None => None,
        };
        if self.asking.is_none() && now >= self.ask_at {
            self.ask_at = now + jitter(&*inner.clock, inner.settings.discover, 10);
            let asked = Arc::clone(inner);
            let asking = inner.janitor.workers().spawn(async move {
                let groups = within(&*asked.clock, asked.settings.give_up, asked.store.groups()).await;
                asked.janitor.wake();
                in_time(groups, asked.settings.give_up)
            });
            self.asking = Some(AbortOnDropHandle::new(asking));
        }
        let Some(answered) = answered else { return Ok(()) };
        inner.listed.store(answered.is_ok(), Ordering::Relaxed);
        for group in answered? {
            inner.name_group(&group, false);
        }
        inner.forget_unnamed();
        Ok(())
    }

    /// How long until it wants a turn; `None` while the store is asked, since the answer wakes the loop.
    pub(super) fn next(&self, now: Mono) -> Option<Duration> {
        self.asking.is_none().then(|| self.ask_at.since(now))
    }
}

fn unwrapped(asked: Result<Result<Vec<Group>>, tokio::task::JoinError>) -> Result<Vec<Group>> {
    asked.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(stopped) => Err(Error::unavailable("the loops stop", Outcome::Unchanged).because(stopped)),
    })
}
