//! The schedule of one sweep: its groups by due time, and the state kept between visits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure_core::clock::Mono;
use tenure_core::id::Group;
use tokio::sync::Mutex;

/// A group that is due.
pub(super) struct Due<W> {
    pub(super) group: Group,
    pub(super) work: Arc<Mutex<W>>,
}

/// One group in one sweep.
struct Slot<W> {
    /// During a visit: the earliest time at which it was touched; `None` for not.
    due_at: Option<Mono>,
    /// Whether it is queued or being visited.
    visited: bool,
    failing: bool,
    /// Locked during a visit. Each group has its own lock, so that a panic affects no other group.
    work: Arc<Mutex<W>>,
}

/// All groups of one sweep. A turn looks at those that are due, however many there are.
pub(super) struct Schedule<W> {
    slots: BTreeMap<Group, Slot<W>>,
    /// The groups that are not visited.
    due: BTreeSet<(Mono, Group)>,
    /// Groups whose last visit failed.
    failing: usize,
}

impl<W> Default for Schedule<W> {
    fn default() -> Self {
        Self {
            slots: BTreeMap::new(),
            due: BTreeSet::new(),
            failing: 0,
        }
    }
}

impl<W: Default> Schedule<W> {
    /// Adds a group that is not there yet.
    pub(super) fn name(&mut self, group: &Group, due_at: Mono) {
        if self.slots.contains_key(group) {
            return;
        }
        let slot = Slot {
            due_at: Some(due_at),
            visited: false,
            failing: false,
            work: Arc::default(),
        };
        self.slots.insert(group.clone(), slot);
        self.due.insert((due_at, group.clone()));
    }

    /// Makes a group due at `at` or earlier. Returns whether that changed the due time.
    pub(super) fn at_latest(&mut self, group: &Group, at: Mono) -> bool {
        let Some(slot) = self.slots.get_mut(group) else {
            return false;
        };
        let before = slot.due_at;
        if before.is_some_and(|before| before <= at) {
            return false;
        }
        slot.due_at = Some(at);
        if !slot.visited {
            if let Some(before) = before {
                self.due.remove(&(before, group.clone()));
            }
            self.due.insert((at, group.clone()));
        }
        true
    }

    /// Starts a visit to each group that is due. A touch during the visit keeps its effect.
    pub(super) fn take(&mut self, now: Mono) -> Vec<Due<W>> {
        let mut taken = Vec::new();
        while self.due.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, group)) = self.due.pop_first()
        {
            if let Some(slot) = self.slots.get_mut(&group) {
                (slot.due_at, slot.visited) = (None, true);
                let work = Arc::clone(&slot.work);
                taken.push(Due { group, work });
            }
        }
        taken
    }

    /// Ends a visit. Returns when the next one is due.
    pub(super) fn done(&mut self, group: &Group, due_at: Mono, failed: bool) -> Mono {
        let Some(slot) = self.slots.get_mut(group) else {
            return due_at;
        };
        let due_at = slot.due_at.map_or(due_at, |touched| touched.min(due_at));
        self.failing = self.failing + usize::from(failed) - usize::from(slot.failing);
        (slot.due_at, slot.visited, slot.failing) = (Some(due_at), false, failed);
        self.due.insert((due_at, group.clone()));
        due_at
    }

    /// Drops a group.
    pub(super) fn remove(&mut self, group: &Group) {
        if let Some(slot) = self.slots.remove(group) {
            self.failing -= usize::from(slot.failing);
            if let Some(at) = slot.due_at {
                self.due.remove(&(at, group.clone()));
            }
        }
    }

    /// The groups that are queued or being visited.
    pub(super) fn taken(&self) -> Vec<Group> {
        let taken = self.slots.iter().filter(|(_, slot)| slot.visited);
        taken.map(|(group, _)| group.clone()).collect()
    }

    /// Whether the last visit of a group failed.
    pub(super) fn is_failing(&self, group: &Group) -> bool {
        self.slots.get(group).is_some_and(|slot| slot.failing)
    }

    /// Whether the last visit of every group failed; `None` without groups.
    pub(super) fn all_fail(&self) -> Option<bool> {
        (!self.slots.is_empty()).then_some(self.failing == self.slots.len())
    }

    /// When the next group is due.
    pub(super) fn next(&self) -> Option<Mono> {
        self.due.first().map(|(at, _)| *at)
    }
}
