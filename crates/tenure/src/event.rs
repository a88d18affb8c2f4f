//! A feed of the events of a group: it waits for new ones, resumes after an outage, and announces what it missed.

use std::collections::VecDeque;
use std::time::Duration;

use tenure_core::clock::jitter;
use tenure_core::error::Result;
use tenure_core::event::{Event, EventId, EventKind, EventQuery};
use tenure_core::id::Group;
use tenure_core::timeout::Timeout;

use crate::client::Context;
use crate::registry::PATIENCE;

/// How many events one read returns at most.
const PAGE: u32 = 200;
/// The longest wait for new events.
const WAIT: Duration = Duration::from_secs(10);
/// The first and the longest pause while the store does not answer.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// One item of an [`EventFeed`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "an item is handed over once, and gaps are rare"
)]
pub enum FeedItem {
    /// An event.
    Event(Event),
    /// Events after the position are gone: trimmed, or lost with the store's data.
    Gap,
}

/// See [`GroupHandle::follow`](crate::GroupHandle::follow).
pub struct EventFeed {
    context: Context,
    group: Group,
    kinds: Vec<EventKind>,
    /// The position of the last read.
    read: Option<EventId>,
    /// The position of the last item returned.
    reported: Option<EventId>,
    waiting: VecDeque<Event>,
    /// A gap is returned before anything in `waiting`.
    gap: bool,
    failed_in_a_row: u32,
}

impl std::fmt::Debug for EventFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EventFeed({} after {:?})", self.group, self.reported)
    }
}

impl EventFeed {
    pub(crate) fn new(context: Context, group: Group, after: Option<EventId>) -> Self {
        Self {
            context,
            group,
            kinds: Vec::new(),
            read: after,
            reported: after,
            waiting: VecDeque::new(),
            gap: false,
            failed_in_a_row: 0,
        }
    }

    /// Only events of these kinds.
    #[must_use]
    pub fn only(self, kinds: &[EventKind]) -> Self {
        Self {
            kinds: kinds.to_vec(),
            ..self
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
    pub async fn next(&mut self) -> Result<FeedItem> {
        loop {
            if std::mem::take(&mut self.gap) {
                return Ok(FeedItem::Gap);
            }
            if let Some(event) = self.waiting.pop_front() {
                self.reported = Some(event.id);
                return Ok(FeedItem::Event(event));
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
            kinds: self.kinds.clone(),
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
        self.waiting.extend(page.events);
        Ok(())
    }

    async fn pause(&mut self, error: &str) {
        let (first, longest) = PAUSES;
        // One line when the outage starts.
        if self.failed_in_a_row == 0 {
            tracing::warn!(group = %self.group, error, "events cannot be read; retrying");
        }
        let doubled = first.saturating_mul(1 << self.failed_in_a_row.min(8));
        self.failed_in_a_row = self.failed_in_a_row.saturating_add(1);
        let clock = &*self.context.clock;
        clock.sleep(jitter(clock, doubled.min(longest), 25)).await;
    }
}
