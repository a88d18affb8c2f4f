//! Members that lapsed and are not back, for the brake.

use std::collections::BTreeSet;
use std::time::Duration;

use super::table::Table;
use crate::id::MemberId;
use crate::time::StoreTime;

/// How many rows that count no longer one step removes: after a mass death there may be very many.
const REMOVED_AT_MOST: usize = 500;

/// Members that lapsed.
#[derive(Debug, Default)]
pub(super) struct Lapses {
    pub(super) table: Table<MemberId, StoreTime>,
    /// Those that count.
    by_time: BTreeSet<(StoreTime, MemberId)>,
    /// Those that count no longer, whose rows the next steps remove.
    over: BTreeSet<(StoreTime, MemberId)>,
}

impl Lapses {
    /// How many count.
    pub(super) fn len(&self) -> u64 {
        self.table.see_all();
        self.by_time.len() as u64
    }

    /// Notes that a member lapsed, or that it is back.
    pub(super) fn set(&mut self, member: MemberId, at: Option<StoreTime>) {
        if let Some(before) = self.table.set(member.clone(), at) {
            self.by_time.remove(&(before, member.clone()));
        }
        if let Some(at) = at {
            self.by_time.insert((at, member));
        }
    }

    /// Drops those that lapsed longer ago than the window.
    pub(super) fn drop_older(&mut self, window: Duration, now: StoreTime) {
        let oldest = now.minus(window);
        if self.by_time.first().is_none_or(|(at, _)| *at >= oldest) {
            return;
        }
        let kept = self.by_time.split_off(&(oldest, MemberId::first()));
        let mut older = std::mem::replace(&mut self.by_time, kept);
        self.over.append(&mut older);
        self.remove_over();
    }

    /// Drops all.
    pub(super) fn clear(&mut self) {
        self.over.append(&mut self.by_time);
        self.remove_over();
    }

    /// Removes some of the rows that count no longer. A restart in between makes them count again, and at most brakes.
    pub(super) fn remove_over(&mut self) {
        for _ in 0..REMOVED_AT_MOST {
            let Some((at, member)) = self.over.pop_first() else {
                break;
            };
            let same = self.table.get(&member) == Some(&at);
            if same && !self.by_time.contains(&(at, member.clone())) {
                self.table.remove(&member);
            }
        }
    }

    /// Those whose rows are still there count again.
    pub(super) fn put_back(&mut self) {
        let there = std::mem::take(&mut self.over).into_iter();
        let there = there.filter(|(at, member)| self.table.get(member) == Some(at));
        self.by_time.extend(there);
    }
}
