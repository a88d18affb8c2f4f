//! The events of one group.

use std::cell::Cell;
use std::collections::VecDeque;

use super::decide::Decide;
use super::group::GroupModel;
use super::table::Noted;
use crate::error::Result;
use crate::event::{Event, EventId, EventKind, EventPage, EventQuery};
use crate::store::StoreOptions;
use crate::time::StoreTime;

/// The newest events of a group: all kept ones or, if an engine stores them, the undurable ones.
#[derive(Debug)]
pub(super) struct Log {
    events: VecDeque<Event>,
    /// The number of the newest dropped event, or the start of the group if none was dropped.
    dropped: EventId,
    /// The number of the newest event.
    pub(super) last: EventId,
    /// No number up to this one is issued again.
    pub(super) used: EventId,
    /// The size of all events except the newest, which is still being written.
    bytes: u64,
    /// The current step; zero if no engine stores the events.
    step: u64,
    /// The steps of the events, if an engine stores them.
    steps: VecDeque<u64>,
    /// The number of events in the current commit.
    taken: usize,
    touched: u64,
    durable: u64,
    seen: Cell<u64>,
}

impl Log {
    /// The log of a group whose events follow this number.
    pub(super) fn beginning_at(start: EventId) -> Self {
        Self {
            events: VecDeque::new(),
            dropped: start,
            last: start,
            used: start,
            bytes: 0,
            step: 0,
            steps: VecDeque::new(),
            taken: 0,
            touched: 0,
            durable: 0,
            seen: Cell::new(0),
        }
    }

    /// Appends an event, and drops the oldest ones if there are too many or they are too large.
    pub(super) fn push(&mut self, now: StoreTime, kind: EventKind, options: &StoreOptions) -> &mut Event {
        self.used = EventId((self.used.0 + 1).max(now.micros()));
        self.last = self.used;
        self.bytes += self.events.back().map_or(0, Event::weight);
        let too_much = |log: &Self| log.events.len() as u64 >= options.events_max || log.bytes > options.events_bytes;
        while self.step == 0 && !self.events.is_empty() && too_much(self) {
            self.drop_oldest();
        }
        if self.step > 0 {
            self.steps.push_back(self.step);
            self.touched = self.step;
        }
        self.events.push_back(Event::new(self.last, now, kind));
        self.events.back_mut().expect("an event was pushed just now")
    }

    /// The number of the newest event, as a read sees it.
    pub(super) fn last(&self) -> EventId {
        self.see_step(self.steps.back().copied().unwrap_or_default());
        self.last
    }

    /// Records that the current read depends on a step, unless that is durable.
    pub(super) fn see_step(&self, step: u64) {
        if step > self.durable {
            self.seen.set(self.seen.get().max(step));
        }
    }

    /// Takes the events since the last call.
    pub(super) fn take(&mut self) -> Vec<Event> {
        let new = self.events.range(self.taken..).cloned().collect();
        self.taken = self.events.len();
        new
    }

    /// Drops the undurable events; the newest durable one has this number.
    pub(super) fn put_back(&mut self, last: EventId) {
        let (used, touched, durable) = (self.used, self.touched, self.durable);
        *self = Self {
            used,
            touched,
            durable,
            ..Self::beginning_at(last)
        };
    }

    /// The approximate size of the undurable events, in bytes.
    pub(super) fn undurable_bytes(&self) -> u64 {
        match self.steps.is_empty() {
            true => 0,
            false => self.bytes + self.events.back().map_or(0, Event::weight),
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(event) = self.events.pop_front() {
            self.bytes = self.bytes.saturating_sub(event.weight());
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

impl Noted for Log {
    fn begin(&mut self, step: u64) {
        self.step = step;
    }

    fn touched(&self) -> u64 {
        self.touched
    }

    fn seen(&self) -> u64 {
        self.seen.take()
    }

    fn durable(&mut self, step: u64) {
        self.durable = step;
        while self.steps.pop_front_if(|of| *of <= step).is_some() {
            self.taken = self.taken.saturating_sub(1);
            self.drop_oldest();
        }
        // A group that is idle keeps no room for events.
        if self.steps.is_empty() && self.events.is_empty() {
            (self.steps, self.events) = Default::default();
        }
    }

    fn forget_notes(&mut self) {
        self.put_back(self.last);
    }

    fn backlog(&self) -> usize {
        self.steps.len()
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
