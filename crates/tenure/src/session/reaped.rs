//! A feed of reaped sessions, for side effects of the application.
//!
//! It reads the events of the group, which are written in the same step as the deletion. So no session is missed while
//! its event is kept, whichever process reaped it: this one, another, or an attach of a new session under the old name.

use tenure_core::error::Result;
use tenure_core::event::{Event, EventId, EventKind};
use tenure_core::id::{Alias, Group, SessionId};
use tenure_core::session::Epoch;
use tenure_core::time::StoreTime;

use crate::client::Context;
use crate::event::{EventFeed, FeedItem};

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
#[derive(Debug)]
pub struct ReapedFeed {
    events: EventFeed,
}

impl ReapedFeed {
    pub(super) fn new(context: Context, group: Group, after: Option<EventId>) -> Self {
        let events = EventFeed::new(context, group, after).only(&[EventKind::SessionReaped]);
        Self { events }
    }

    /// Everything up to here was returned. Store it once that was handled, and start from it next time. `None` while
    /// nothing was read.
    #[must_use]
    pub fn position(&self) -> Option<EventId> {
        self.events.position()
    }

    /// Waits for the next item. Retries for as long as the store does not answer. Cancel safe: no item is skipped.
    ///
    /// # Errors
    /// Those of [`EventFeed::next`].
    pub async fn next(&mut self) -> Result<ReapedEvent> {
        loop {
            match self.events.next().await? {
                FeedItem::Gap => return Ok(ReapedEvent::Gap),
                FeedItem::Event(event) => {
                    if let Some(reaped) = reaped(event) {
                        return Ok(ReapedEvent::Reaped(reaped));
                    }
                }
            }
        }
    }
}

fn reaped(event: Event) -> Option<Reaped> {
    Some(Reaped {
        session: event.session?,
        epoch: event.epoch?,
        alias: event.alias,
        at: event.at,
        event: event.id,
    })
}
