//! The events of one group.

use std::collections::VecDeque;

use super::decide::Decide;
use super::group::GroupModel;
use crate::error::Result;
use crate::event::{Event, EventId, EventKind, EventPage, EventQuery};
use crate::store::StoreOptions;
use crate::time::StoreTime;

/// The newest events of a group.
#[derive(Debug)]
pub(super) struct Log {
    events: VecDeque<Event>,
    /// The number of the event before the oldest one that is kept; where the group began, when none was dropped.
    dropped: EventId,
    /// The number of the newest event.
    pub(super) last: EventId,
    /// What all events but the newest weigh: that one is still being written.
    bytes: u64,
}

impl Log {
    /// The log of a group whose events come after this number.
    pub(super) fn beginning_at(start: EventId) -> Self {
        Self {
            events: VecDeque::new(),
            dropped: start,
            last: start,
            bytes: 0,
        }
    }

    /// Appends an event, and drops the oldest ones when there are too many, or when they are too long together.
    pub(super) fn push(&mut self, now: StoreTime, kind: EventKind, options: &StoreOptions) -> &mut Event {
        self.last = EventId((self.last.0 + 1).max(now.micros()));
        self.bytes += self.events.back().map_or(0, Event::weight);
        let too_much = |log: &Self| log.events.len() as u64 >= options.events_max || log.bytes > options.events_bytes;
        while !self.events.is_empty() && too_much(self) {
            self.drop_oldest();
        }
        self.events.push_back(Event::new(self.last, now, kind));
        self.events.back_mut().expect("an event was pushed just now")
    }

    fn drop_oldest(&mut self) {
        if let Some(event) = self.events.pop_front() {
            self.bytes -= event.weight();
            self.dropped = event.id;
        }
    }

    /// Reads a page.
    pub(super) fn read(&self, query: &EventQuery) -> EventPage {
        let most = query.limit as usize;
        if let Some(before) = query.before {
            let end = self.events.partition_point(|event| event.id < before);
            let looked_at: Vec<&Event> = self.events.range(end.saturating_sub(most)..end).collect();
            let last = looked_at.first().map_or(before, |event| event.id);
            return page(looked_at, last, false, query);
        }
        let missed = query
            .after
            .is_some_and(|after| after < self.dropped || after > self.last);
        let after = query.after.filter(|_| !missed);
        let begin = after.map_or(0, |after| self.events.partition_point(|event| event.id <= after));
        let looked_at: Vec<&Event> = self.events.range(begin..).take(most).collect();
        let last = looked_at.last().map_or(after.unwrap_or(self.last), |event| event.id);
        page(looked_at, last, missed, query)
    }
}

impl Decide<EventQuery> for GroupModel {
    fn read(&self, query: &EventQuery, _: StoreTime) -> Result<EventPage> {
        Ok(self.log.read(query))
    }
}

fn page(looked_at: Vec<&Event>, last: EventId, missed: bool, query: &EventQuery) -> EventPage {
    let asked_for = |event: &&Event| query.kinds.is_empty() || query.kinds.contains(&event.kind);
    EventPage {
        events: looked_at.into_iter().filter(asked_for).cloned().collect(),
        last,
        missed,
    }
}
