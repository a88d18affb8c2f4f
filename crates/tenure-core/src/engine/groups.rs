//! The groups of a store.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::watch;

use super::cell::Cell;
use crate::id::{Group, NodeId};
use crate::lease::WaitingTurn;
use crate::store::StoreOptions;
use crate::time::StoreTime;

/// All groups that are there, or whose first step waits for the disk.
#[derive(Debug)]
pub(super) struct Groups {
    cells: RwLock<BTreeMap<Group, Arc<Cell>>>,
    /// Groups that were removed since the start: a sweep does not bring them back.
    forgotten: Mutex<HashSet<Group>>,
    /// Groups with waiting requests whose grants are durable and not fetched yet.
    turned: Mutex<BTreeSet<Group>>,
    /// Changes when a group became durable, and when nothing is served any more.
    births: watch::Sender<()>,
}

impl Groups {
    pub(super) fn new(cells: BTreeMap<Group, Arc<Cell>>) -> Self {
        Self {
            cells: RwLock::new(cells),
            forgotten: Mutex::default(),
            turned: Mutex::default(),
            births: watch::Sender::new(()),
        }
    }

    pub(super) fn find(&self, group: &Group) -> Option<Arc<Cell>> {
        self.cells
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(group)
            .cloned()
    }

    /// A place for a group that was not found; one that was made since then is used.
    pub(super) fn make(&self, group: &Group, options: &StoreOptions, now: StoreTime) -> Arc<Cell> {
        let mut cells = self.cells.write().unwrap_or_else(PoisonError::into_inner);
        let cell = cells.entry(group.clone());
        Arc::clone(cell.or_insert_with(|| Cell::new(group.clone(), options.clone(), now)))
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> Vec<Arc<Cell>> {
        let cells = self.cells.read().unwrap_or_else(PoisonError::into_inner);
        cells.values().cloned().collect()
    }

    /// Removes one.
    pub(super) fn remove(&self, cell: &Arc<Cell>) {
        let mut cells = self.cells.write().unwrap_or_else(PoisonError::into_inner);
        if cells.get(&cell.group).is_some_and(|there| Arc::ptr_eq(there, cell)) {
            cells.remove(&cell.group);
        }
    }

    /// Notes that a group became durable.
    pub(super) fn note_birth(&self, group: &Group) {
        self.forgotten_groups().remove(group);
        self.wake();
    }

    /// Notes that the removal of a group became durable.
    pub(super) fn note_forgotten(&self, group: &Group) {
        self.forgotten_groups().insert(group.clone());
        self.wake();
    }

    pub(super) fn is_forgotten(&self, group: &Group) -> bool {
        self.forgotten_groups().contains(group)
    }

    /// Notes that grants to waiting requests became durable.
    pub(super) fn note_turns(&self, group: &Group) {
        self.turned_groups().insert(group.clone());
        self.wake();
    }

    /// Takes the durable grants to waiting requests of a process.
    pub(super) fn take_turns(&self, node: &NodeId) -> Vec<WaitingTurn> {
        let groups: Vec<Group> = self.turned_groups().iter().cloned().collect();
        let mut turns = Vec::new();
        for group in groups {
            let Some(cell) = self.find(&group) else {
                self.turned_groups().remove(&group);
                continue;
            };
            let mut state = cell.lock();
            turns.extend(state.model.take_turns(&group, node));
            if !state.model.has_turns() {
                self.turned_groups().remove(&group);
            }
        }
        turns
    }

    /// Changes with the groups, and with the grants to waiting requests.
    pub(super) fn births(&self) -> watch::Receiver<()> {
        self.births.subscribe()
    }

    pub(super) fn wake(&self) {
        self.births.send_replace(());
    }

    fn turned_groups(&self) -> std::sync::MutexGuard<'_, BTreeSet<Group>> {
        self.turned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forgotten_groups(&self) -> std::sync::MutexGuard<'_, HashSet<Group>> {
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
