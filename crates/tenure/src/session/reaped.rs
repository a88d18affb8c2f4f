//! The sessions that were reaped, one after the other, for side effects of the user's own.
//!
//! They come from the events of the group, which were written in the same step as the deletion. So none is missed as long
//! as the events are kept, whoever reaped it: this process, another, or the attach of a new session under the old name.

use std::collections::VecDeque;
use std::time::Duration;

use tenure_core::clock::jitter;
use tenure_core::error::Result;
use tenure_core::event::{EventId, EventKind, EventQuery};
use tenure_core::id::{Alias, Group, SessionId};
use tenure_core::session::Epoch;
use tenure_core::time::StoreTime;
use tenure_core::timeout::Timeout;

use crate::client::Context;
use crate::registry::PATIENCE;

/// How many events one question reads.
const PAGE: u32 = 200;
/// How long one wait for events takes at most.
const WAIT: Duration = Duration::from_secs(10);
/// The first and the longest pause after a store that does not answer.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// A session that is gone because its grace was over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaped {
    /// Which.
    pub session: SessionId,
    /// Its last attach. A session that was made anew under the same name has a higher one, so both together are the key for
    /// what must not be done twice.
    pub epoch: Epoch,
    /// Its other name, which is free.
    pub alias: Option<Alias>,
    /// When, by the store's clock.
    pub at: StoreTime,
    /// The event that tells it.
    pub event: EventId,
}

/// What a feed tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReapedNews {
    /// A session was reaped.
    Reaped(Reaped),
    /// Events after the position are gone: trimmed because nobody read them for long, or lost with the store's data. Some
    /// reaped sessions may be among them.
    Gap,
}

/// See [`super::GroupSessions::reaped`].
pub struct ReapedFeed {
    context: Context,
    group: Group,
    /// How far was read.
    read: Option<EventId>,
    /// How far was told.
    told: Option<EventId>,
    waiting: VecDeque<Reaped>,
    /// Told before anything that is waiting.
    gap: bool,
    failed_in_a_row: u32,
}

impl std::fmt::Debug for ReapedFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReapedFeed({} after {:?})", self.group, self.told)
    }
}

impl ReapedFeed {
    pub(super) fn new(context: Context, group: Group, after: Option<EventId>) -> Self {
        Self {
            context,
            group,
            read: after,
            told: after,
            waiting: VecDeque::new(),
            gap: false,
            failed_in_a_row: 0,
        }
    }

    /// Everything up to here was told. Keep it once that was handled, and begin with it next time. `None` as long as nothing
    /// was read.
    #[must_use]
    pub fn position(&self) -> Option<EventId> {
        self.told
    }

    /// Waits for the next one. A store that does not answer is asked again until it does. Safe to cancel: what was not
    /// answered is not skipped.
    ///
    /// # Errors
    /// What trying again does not heal: `Denied`, `Unsupported`, `Internal`.
    pub async fn next(&mut self) -> Result<ReapedNews> {
        loop {
            if std::mem::take(&mut self.gap) {
                return Ok(ReapedNews::Gap);
            }
            if let Some(reaped) = self.waiting.pop_front() {
                self.told = Some(reaped.event);
                return Ok(ReapedNews::Reaped(reaped));
            }
            self.told = self.read;
            match self.read().await {
                Ok(()) => self.failed_in_a_row = 0,
                Err(error) if error.is_unavailable() => self.pause(&error.chain()).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a page, or waits until there may be one.
    async fn read(&mut self) -> Result<()> {
        let store = &self.context.store;
        let query = EventQuery {
            after: self.read,
            limit: PAGE,
            kinds: vec![EventKind::SessionReaped],
            ..EventQuery::default()
        };
        let page = self.context.read(store.events(&self.group, &query)).await?;
        // A group without any event has no place to go on from yet.
        let at_end = page.last == self.read.unwrap_or_default();
        if page.missed {
            self.gap = true;
        } else if at_end {
            let wait = store.wait_for_events(&self.group, page.last, WAIT);
            let bound = Timeout::read(WAIT + PATIENCE);
            return bound.call(&*self.context.clock, "the store", wait).await;
        }
        self.read = Some(page.last);
        let reaped = page.events.into_iter().filter_map(|event| {
            Some(Reaped {
                session: event.session?,
                epoch: event.epoch?,
                alias: event.alias,
                at: event.at,
                event: event.id,
            })
        });
        self.waiting.extend(reaped);
        Ok(())
    }

    async fn pause(&mut self, error: &str) {
        let (first, longest) = PAUSES;
        // One line when it starts.
        if self.failed_in_a_row == 0 {
            tracing::warn!(group = %self.group, error, "reaped sessions cannot be read; trying again");
        }
        let doubled = first.saturating_mul(1 << self.failed_in_a_row.min(8));
        self.failed_in_a_row = self.failed_in_a_row.saturating_add(1);
        let clock = &*self.context.clock;
        clock.sleep(jitter(clock, doubled.min(longest), 25)).await;
    }
}
