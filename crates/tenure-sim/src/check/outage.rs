//! When the store's machine did not serve, as the simulation knows it. The store has to detect it by itself.

use std::collections::VecDeque;
use std::time::Duration;

use tenure::StoreTime;

use super::{Checked, Current, must};
use crate::time::At;

/// Every longer silence is detected.
pub(super) const LONGEST_GAP: Duration = tenure_core::settling::MAX_GAP;
/// How many outages are remembered: those within a living tenure's reach.
const REMEMBERED: usize = 16;

/// Outages of the store's machine, by its own clock and by that of the world.
#[derive(Debug, Default)]
pub struct Outages {
    began: Option<(StoreTime, At)>,
    /// With their true length: the store's clock may have been stepped during one.
    over: VecDeque<(StoreTime, StoreTime, Duration)>,
    /// The same in world time, which never falls back.
    in_world: VecDeque<(At, At)>,
}

impl Outages {
    /// Records that it stopped serving.
    pub fn begin(&mut self, now: StoreTime, at: At) {
        self.began.get_or_insert((now, at));
    }

    /// Records that it serves again.
    pub fn end(&mut self, now: StoreTime, at: At) {
        let Some((began, began_at)) = self.began.take() else {
            return;
        };
        if self.over.len() >= REMEMBERED {
            self.over.pop_front();
        }
        if self.in_world.len() >= REMEMBERED {
            self.in_world.pop_front();
        }
        self.over.push_back((began, now, at.since(began_at)));
        self.in_world.push_back((began_at, at));
    }

    /// When the last outage ended; now if one lasts.
    #[must_use]
    pub fn last(&self, now: At) -> At {
        match self.began {
            Some(_) => now,
            None => self.in_world.back().map_or_else(At::default, |(_, over)| *over),
        }
    }

    /// Forgets all outages after the clock fell back: times before and after cannot be compared, and every ttl
    /// restarts.
    pub fn forget(&mut self) {
        self.over.clear();
        self.began = None;
    }

    /// Whether several silences since its last beat, each shorter than the gap, left a member no time to beat, as
    /// `GUARANTEES.md` allows: together they exceed the slack of a ttl.
    #[must_use]
    pub fn left_no_time(&self, current: &Current, now: At) -> bool {
        let spare = current.ttl * 5 / 12;
        let mut since = self
            .in_world
            .iter()
            .filter(|(_, over)| *over > current.renewed_in_world);
        let in_all: Duration = since
            .clone()
            .map(|(began, over)| over.since((*began).max(current.renewed_in_world)))
            .sum();
        // A gap among them is detected and restarts every ttl, so it excuses nothing.
        since.clone().count() > 1
            && since.all(|(began, over)| *over <= now && over.since(*began) <= spare.min(LONGEST_GAP))
            && in_all > spare
    }

    /// The outage that cut short a time that began at `since` and has to last for `lasts` after every outage that is
    /// longer than `gap`.
    #[must_use]
    pub fn cut_short(
        &self,
        since: StoreTime,
        lasts: Duration,
        gap: Duration,
        now: StoreTime,
    ) -> Option<&(StoreTime, StoreTime, Duration)> {
        self.over.iter().find(|(began, over, lasted)| {
            let is_gap = over.since(*began).min(*lasted) > gap;
            since <= *began && is_gap && now < *over + lasts
        })
    }

    /// Checks that no outage of the store ended a tenure: one that lived through it has lapsed no earlier than a full
    /// ttl after it.
    ///
    /// # Errors
    /// If the tenure lapsed earlier.
    pub fn check(&self, current: &Current, now: StoreTime) -> Checked {
        // A group's gap is at most this, so every longer outage is detected.
        let gap = LONGEST_GAP.min(current.ttl * 5 / 12);
        let too_early = self.cut_short(current.renewed_at, current.ttl, gap, now);
        must(
            too_early.is_none(),
            "no member lapses because of an outage of the store",
            || {
                let tenure = &current.tenure;
                format!(
                    "{tenure} lapsed at {now} with a ttl of {:?} after the outage {too_early:?}",
                    current.ttl
                )
            },
        )
    }
}
