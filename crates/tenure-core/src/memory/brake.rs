//! The brake of one group.

use std::time::Duration;

use super::group::{GroupModel, Head};
use crate::brake::Brake;
use crate::event::EventKind;
use crate::time::StoreTime;

impl GroupModel {
    /// Engages the brake if too many members lapsed. The last action of every step that may end a tenure.
    pub(super) fn engage_brake(&mut self, now: StoreTime) {
        let head = self.head();
        self.forget_lapses(&head, now);
        self.lapses.remove_over();
        if head.brake.is_some() || self.lapses.len() == 0 {
            return;
        }
        let (lapsed, present) = self.lapsed_and_present();
        if self.options.brake.too_many(lapsed, present) {
            let until = now + self.options.brake.hold;
            self.change_head(|head| head.brake = Some((now, until)));
            let event = self.emit(now, EventKind::SweepBraked);
            event.counts.insert("lapsed".to_owned(), lapsed);
            event.counts.insert("present".to_owned(), present);
        }
    }

    /// Unless the brake is engaged, lapses count no longer than the longest ttl.
    pub(super) fn forget_lapses(&mut self, head: &Head, now: StoreTime) {
        if head.brake.is_none() {
            let window = head.ttls.map_or(Duration::ZERO, |(_, longest)| longest);
            self.lapses.drop_older(window, now);
        }
    }

    /// Lifts the brake if its time is over, enough members have rejoined, or `force` is set.
    pub(super) fn lift_brake(&mut self, now: StoreTime, force: bool) {
        self.lapses.remove_over();
        let Some((_, until)) = self.head().brake else { return };
        let reason = if force {
            "operator"
        } else if now >= until {
            "time"
        } else if self.brake_in_force(now).is_none() {
            "recovered"
        } else {
            return;
        };
        self.change_head(|head| head.brake = None);
        if reason != "recovered" {
            self.lapses.clear();
        }
        self.emit(now, EventKind::SweepUnbraked).reason = Some(reason.to_owned());
    }

    /// The brake, unless its reason no longer holds.
    pub(super) fn brake_in_force(&self, now: StoreTime) -> Option<Brake> {
        let (since, until) = self.head().brake?;
        let (lapsed, present) = self.lapsed_and_present();
        let in_force = now < until && self.options.brake.too_many(lapsed, present);
        in_force.then_some(Brake {
            since,
            until,
            lapsed,
            present,
        })
    }

    fn lapsed_and_present(&self) -> (u64, u64) {
        (self.lapses.len(), self.lives.table.len() as u64)
    }
}
