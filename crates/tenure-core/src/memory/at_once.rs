//! Calls answered without a step because no stored row changes: heartbeats (beats are in `keep.rs`).

use super::group::GroupModel;
use super::log::Log;
use crate::event::EventId;
use crate::roster::{Heartbeat, HeartbeatReply};
use crate::store::StoreOptions;
use crate::time::StoreTime;

impl GroupModel {
    /// The state that reads see for a missing group.
    pub(crate) fn absent(options: StoreOptions, now: StoreTime) -> Self {
        let mut model = Self::new(options, now);
        model.log = Log::beginning_at(EventId(0));
        model
    }

    /// Starts tracking the dependencies of reads, for [`Self::seen`].
    pub(crate) fn begin_look(&self) {
        self.forget_seen();
    }

    /// The number of the newest event.
    pub(crate) fn last_event(&self) -> EventId {
        self.log.last
    }

    /// Records a heartbeat if only a deadline changes, or returns the reply that the row alone determines. `None` if it
    /// needs a step.
    pub(crate) fn heartbeat_at_once(&mut self, heartbeat: &Heartbeat, now: StoreTime) -> Option<HeartbeatReply> {
        if self.has_gap(now) {
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
}
