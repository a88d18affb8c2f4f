//! A feed of reaped sessions, for side effects of the application.
//!
//! It reads the events of the group, which are written in the same step as the deletion. So no session is missed while
//! its event is kept, whichever process reaped it: this one, another, or an attach of a new session under the old name.

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

/// How many events one read returns at most.
const PAGE: u32 = 200;
/// The longest wait for new events.
const WAIT: Duration = Duration::from_secs(10);
/// The first and the longest pause while the store does not answer.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// A session that was deleted because its grace was over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaped {
    /// The session's name.
    pub session: SessionId,
    /// Its last epoch. A session recreated under the same name has a higher one, so name and epoch together are the
    /// idempotency key.
    pub epoch: Epoch,
    /// Its alias, which is free now.
    pub alias: Option<Alias>,
    /// When it was reaped, by the store's clock.
    pub at: StoreTime,
    /// The event that records it.
    pub event: EventId,
}

/// One item of a [`ReapedFeed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReapedEvent {
    /// A session was reaped.
    Reaped(Reaped),
    /// Events after the position are gone: trimmed, or lost with the store's data. They may have contained
    /// reaped sessions.
    Gap,
}

/// See [`super::GroupSessions::reaped`].
pub struct ReapedFeed {
    context: Context,
    group: Group,
    /// The position of the last read.
    read: Option<EventId>,
    /// The position of the last item returned.
    reported: Option<EventId>,
    waiting: VecDeque<Reaped>,
    /// A gap is returned before anything in `waiting`.
    gap: bool,
    failed_in_a_row: u32,
}

impl std::fmt::Debug for ReapedFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReapedFeed({} after {:?})", self.group, self.reported)
    }
}

impl ReapedFeed {
    pub(super) fn new(context: Context, group: Group, after: Option<EventId>) -> Self {
        Self {
            context,
            group,
            read: after,
            reported: after,
            waiting: VecDeque::new(),
            gap: false,
            failed_in_a_row: 0,
        }
    }

    /// Everything up to here was returned. Store it once that was handled, and start from it next time. `None` while
    /// nothing was read.
    #[must_use]
    pub fn position(&self) -> Option<EventId> {
        self.reported
    }

    /// Waits for the next item. Retries for as long as the store does not answer. Cancel safe: no item is skipped.
    ///
    /// # Errors
    /// Those that retrying cannot help: `Denied`, `Unsupported`, `Internal`.
    pub async fn next(&mut self) -> Result<ReapedEvent> {
        loop {
            if std::mem::take(&mut self.gap) {
                return Ok(ReapedEvent::Gap);
            }
            if let Some(reaped) = self.waiting.pop_front() {
                self.reported = Some(reaped.event);
                return Ok(ReapedEvent::Reaped(reaped));
            }
            self.reported = self.read;
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
        // A group without any event has no position to continue from.
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
        // One line when the outage starts.
        if self.failed_in_a_row == 0 {
            tracing::warn!(group = %self.group, error, "reaped sessions cannot be read; retrying");
        }
        let doubled = first.saturating_mul(1 << self.failed_in_a_row.min(8));
        self.failed_in_a_row = self.failed_in_a_row.saturating_add(1);
        let clock = &*self.context.clock;
        clock.sleep(jitter(clock, doubled.min(longest), 25)).await;
    }
}
