//! What is answered without a step, because nothing that is stored changes: heartbeats and ticks, beside beats.

use super::group::GroupModel;
use super::log::Log;
use crate::event::EventId;
use crate::roster::{Heartbeat, HeartbeatReply};
use crate::store::StoreOptions;
use crate::sweep::GroupStatus;
use crate::time::StoreTime;

impl GroupModel {
    /// A group that is not there, as reads see it.
    pub(crate) fn absent(options: StoreOptions, now: StoreTime) -> Self {
        let mut model = Self::new(options, now);
        model.log = Log::beginning_at(EventId(0));
        model
    }

    /// What [`Self::seen`] answers is about reads from here on.
    pub(crate) fn begin_look(&self) {
        self.forget_seen();
    }

    /// The number of the newest event.
    pub(crate) fn last_event(&self) -> EventId {
        self.log.last
    }

    /// Records a heartbeat if nothing but a deadline changes, or answers what the row alone says. `None` when it takes a
    /// step.
    pub(crate) fn heartbeat_at_once(&mut self, heartbeat: &Heartbeat, now: StoreTime) -> Option<HeartbeatReply> {
        if self.is_about_to_resume(now) {
            return None;
        }
        let tenure = match self.named_by_row(heartbeat) {
            Ok(tenure) => tenure,
            Err(reply) => return Some(reply),
        };
        self.lives.durable_of(&tenure)?;
        let live = self.current(&tenure)?;
        if now >= self.end_now(live, now) {
            return None;
        }
        self.tick = now;
        self.lives.extend(tenure.member(), now);
        self.forget_lapses(&self.head(), now);
        Some(HeartbeatReply::Recorded)
    }

    /// Keeps the cadence if nothing stored changes. `None` when it takes a step. The tick moves all the same, unless a
    /// step has to see a gap first: while no step can be taken, a group that is served must not look like one that was not.
    pub(crate) fn tick_at_once(&mut self, now: StoreTime) -> Option<GroupStatus> {
        if self.is_about_to_resume(now) {
            return None;
        }
        self.tick = now;
        let head = self.head();
        let is_over = head.unsettled.is_some_and(|unsettled| now >= unsettled.until);
        let is_recovered = head.brake.is_some() && self.brake_in_force(now).is_none();
        if is_over || is_recovered {
            return None;
        }
        self.note_empty(now);
        Some(self.status(now))
    }
}
