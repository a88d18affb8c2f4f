//! When something is due in a group, and the index of all groups by that time.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::group::GroupModel;
use crate::id::Group;
use crate::pulse::{DueGroups, KeptPulse, ListDue};
use crate::time::StoreTime;

impl GroupModel {
    /// Whether nothing can become due in it but that it is forgotten.
    pub(crate) fn is_idle(&self, now: StoreTime) -> bool {
        let (status, head) = (self.status(now), self.head());
        !status.is_occupied() && !self.roster.is_known() && head.unsettled.is_none() && head.brake.is_none()
    }

    /// The earliest time at which a sweep has something to do; the true time may be later. `None` for never.
    pub(crate) fn due(&self, now: StoreTime) -> Option<StoreTime> {
        let status = self.status(now);
        let head = self.head();
        // A brake that the returned members lift is lifted by the next visit.
        let brake = head
            .brake
            .map(|(_, until)| if status.brake.is_some() { until } else { now });
        let is_empty = !status.is_occupied() && !self.roster.is_known();
        let long = self.options.forget_after;
        let forget = is_empty.then(|| {
            self.empty_since
                .filter(|since| *since <= now)
                .map_or(now, |since| since + long)
        });
        let dues = [
            status.next_due,
            status.next_release,
            status.next_reap,
            status.next_offline,
            status.next_wake,
            head.unsettled.map(|unsettled| unsettled.until),
            brake,
            forget,
        ];
        dues.into_iter().flatten().min()
    }
}

/// The groups of a store by the time at which something is due.
#[derive(Debug, Default)]
pub(crate) struct DueIndex {
    times: HashMap<Group, StoreTime>,
    groups: BTreeSet<(StoreTime, Group)>,
}

impl DueIndex {
    /// Sets when a group is due; `None` for never.
    pub(crate) fn set(&mut self, group: &Group, at: Option<StoreTime>) {
        let before = match at {
            Some(at) => self.times.insert(group.clone(), at),
            None => self.times.remove(group),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.groups.remove(&(before, group.clone()));
        }
        if let Some(at) = at {
            self.groups.insert((at, group.clone()));
        }
    }

    /// Moves what is due later to this time.
    pub(crate) fn no_later_than(&mut self, at: StoreTime) {
        let later = self.groups.iter().rev().take_while(|(due, _)| *due > at);
        let later: Vec<Group> = later.map(|(_, group)| group.clone()).collect();
        for group in &later {
            self.set(group, Some(at));
        }
    }

    /// The groups that are due soon.
    pub(crate) fn list(&self, ask: ListDue, pulse: &KeptPulse, now: StoreTime) -> DueGroups {
        let until = now + ask.ahead.min(Duration::from_secs(86_400));
        let due = self.groups.iter().take_while(|(at, _)| *at <= until);
        let due = due.take(ask.limit as usize).map(|(at, group)| (group.clone(), *at));
        DueGroups {
            as_of: now,
            resumed_at: pulse.resumed_at(),
            groups: due.collect(),
            is_complete: true,
        }
    }
}
