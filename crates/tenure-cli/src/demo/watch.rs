//! The events of a group from a moment on: the source of what the demo reports.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Clock, Event, EventId, EventKind, EventQuery, GroupHandle, Store, StoreTime, Tenure};

/// Time-out for everything that is expected. Far longer than it takes, so that a slow machine fails no expectation.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// The longest wait for events, and the pause when the store does not answer.
const TURN: Duration = Duration::from_millis(500);

/// The events of a group since the watch began.
pub(super) struct Watch {
    group: GroupHandle,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    began: StoreTime,
    after: EventId,
    seen: Vec<Event>,
}

impl Watch {
    /// Begins now, by the store's clock.
    pub(super) async fn begin(tenure: &Tenure, group: &str) -> anyhow::Result<Self> {
        let group = tenure.group(group)?;
        let status = group.status().await?;
        Ok(Self {
            began: tenure.store().now().await?,
            after: status.last_event,
            group,
            store: Arc::clone(tenure.store()),
            clock: Arc::clone(tenure.clock()),
            seen: Vec::new(),
        })
    }

    /// Reads on until `find` finds what it looks for among all events since the beginning. `None` when that does not come.
    pub(super) async fn until<T>(&mut self, find: impl Fn(&[Event]) -> Option<T>) -> Option<T> {
        let give_up = self.clock.mono() + PATIENCE;
        loop {
            if let Some(found) = find(&self.seen) {
                return Some(found);
            }
            if self.clock.mono() >= give_up {
                return None;
            }
            // A store that pauses is part of the story.
            if self.read_on().await.is_err() {
                self.clock.sleep(TURN).await;
            }
        }
    }

    async fn read_on(&mut self) -> tenure::Result<()> {
        self.store.wait_for_events(self.group.name(), self.after, TURN).await?;
        let query = EventQuery {
            after: Some(self.after),
            limit: 1_000,
            ..EventQuery::default()
        };
        let page = self.group.events(&query).await?;
        self.after = page.last;
        self.seen.extend(page.events);
        Ok(())
    }

    /// Waits for the first event of a kind about a member.
    pub(super) async fn first(&mut self, kind: EventKind, member: &str) -> Option<Event> {
        let is = |event: &&Event| event.kind == kind && event.member().is_some_and(|one| one.as_str() == member);
        self.until(|events| events.iter().find(is).cloned()).await
    }

    /// Waits for the first event of a kind.
    pub(super) async fn first_of(&mut self, kind: EventKind) -> Option<Event> {
        self.until(|events| events.iter().find(|event| event.kind == kind).cloned())
            .await
    }

    /// The number of events of a kind so far.
    pub(super) fn count(&self, kind: EventKind) -> usize {
        self.seen.iter().filter(|event| event.kind == kind).count()
    }

    /// The sum of one count over all events of a kind so far.
    pub(super) fn sum(&self, kind: EventKind, of: &str) -> u64 {
        let events = self.seen.iter().filter(|event| event.kind == kind);
        events.filter_map(|event| event.counts.get(of)).sum()
    }

    /// The time from the beginning to an event.
    pub(super) fn took(&self, event: &Event) -> Duration {
        event.at.since(self.began)
    }
}
