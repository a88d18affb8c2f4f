//! When the store's machine did not serve, as the world knows it. The store itself has to find out.

use std::collections::VecDeque;
use std::time::Duration;

use tenure::StoreTime;

use super::{Checked, Current, must};

/// How many outages are remembered: those that a living tenure can have met.
const REMEMBERED: usize = 16;

/// Outages of the store's machine, by its own clock.
#[derive(Debug, Default)]
pub struct Outages {
    began: Option<StoreTime>,
    over: VecDeque<(StoreTime, StoreTime)>,
}

impl Outages {
    /// It stops serving.
    pub fn begin(&mut self, now: StoreTime) {
        self.began.get_or_insert(now);
    }

    /// It serves again.
    pub fn end(&mut self, now: StoreTime) {
        let Some(began) = self.began.take() else { return };
        if self.over.len() >= REMEMBERED {
            self.over.pop_front();
        }
        self.over.push_back((began, now));
    }

    /// Its clock fell back: times before and after cannot be compared, and everyone gets a full ttl anyway.
    pub fn forget(&mut self) {
        self.over.clear();
        self.began = None;
    }

    /// Nobody is declared dead for an outage of the store: a tenure that lived through one has lapsed no earlier than
    /// a full ttl after it.
    ///
    /// # Errors
    /// When it has.
    pub fn check(&self, current: &Current, now: StoreTime) -> Checked {
        // The gap of the group is at most this, so every longer outage has to be noticed.
        let gap = Duration::from_secs(2).min(current.ttl * 5 / 12);
        let too_early = self.over.iter().find(|(began, over)| {
            current.renewed_at <= *began && over.since(*began) > gap && now < *over + current.ttl
        });
        must(
            too_early.is_none(),
            "nobody is declared dead for an outage of the store",
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
