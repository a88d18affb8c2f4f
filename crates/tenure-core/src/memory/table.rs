//! Tables that track changes: the keys that a step touched, the keys that are not durable, and the dependencies of
//! reads.
//!
//! In a model whose rows are not stored, the step number is zero and tables track nothing.

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::ops::RangeBounds;

/// The common operations of a group's tables.
pub(super) trait Noted {
    /// Begins a step; its changes carry this number. Zero tracks nothing.
    fn begin(&mut self, step: u64);
    /// The newest step with changes.
    fn touched(&self) -> u64;
    /// The newest undurable step that reads have depended on since the last call.
    fn seen(&self) -> u64;
    /// All steps up to this one are durable.
    fn durable(&mut self, step: u64);
    /// Discards all tracking.
    fn forget_notes(&mut self);
    /// The number of undurable keys.
    fn backlog(&self) -> usize;
}

/// The touched keys of one table. A group has many tables, and most are empty.
#[derive(Debug)]
struct Notes<K> {
    /// The current step; zero for none.
    step: u64,
    touched: u64,
    seen: Cell<u64>,
    /// Nothing while all keys are durable.
    undurable: Option<Box<Undurable<K>>>,
}

/// The keys that are not durable.
#[derive(Debug)]
struct Undurable<K> {
    /// Touched keys in order, each once per step, until they are durable.
    queue: VecDeque<(u64, K)>,
    /// The number of keys in the current commit.
    taken: usize,
    /// The last step that touched a key.
    last: HashMap<K, u64>,
}

/// A map that tracks its changes.
#[derive(Debug)]
pub(super) struct Table<K, V> {
    rows: BTreeMap<K, V>,
    notes: Notes<K>,
}

impl<K> Default for Notes<K> {
    fn default() -> Self {
        Self {
            step: 0,
            touched: 0,
            seen: Cell::new(0),
            undurable: None,
        }
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            notes: Notes::default(),
        }
    }
}

impl<K: Eq + Hash + Clone> Notes<K> {
    fn see(&self, step: u64) {
        self.seen.set(self.seen.get().max(step));
    }

    fn see_key(&self, key: &K) {
        let step = self.undurable.as_ref().and_then(|undurable| undurable.last.get(key));
        step.into_iter().for_each(|step| self.see(*step));
    }

    /// Depends on every key.
    fn see_all(&self) {
        let newest = self.undurable.as_ref().and_then(|undurable| undurable.queue.back());
        newest.into_iter().for_each(|(step, _)| self.see(*step));
    }

    fn touch(&mut self, key: &K) {
        let step = self.step;
        if step == 0 {
            return;
        }
        let empty = || {
            Box::new(Undurable {
                queue: VecDeque::new(),
                taken: 0,
                last: HashMap::new(),
            })
        };
        let undurable = self.undurable.get_or_insert_with(empty);
        if undurable.last.insert(key.clone(), step) != Some(step) {
            undurable.queue.push_back((step, key.clone()));
            self.touched = step;
        }
    }

    /// Takes the keys that are in no commit, each once.
    fn take(&mut self) -> Vec<K> {
        let Some(undurable) = &mut self.undurable else {
            return Vec::new();
        };
        let last = |(step, key): &&(u64, K)| undurable.last.get(key) == Some(step);
        let new = undurable.queue.range(undurable.taken..).filter(last);
        let keys = new.map(|(_, key)| key.clone()).collect();
        undurable.taken = undurable.queue.len();
        keys
    }

    fn durable(&mut self, step: u64) {
        let Some(undurable) = &mut self.undurable else { return };
        while let Some((touched, key)) = undurable.queue.pop_front_if(|(touched, _)| *touched <= step) {
            undurable.taken = undurable.taken.saturating_sub(1);
            if let Entry::Occupied(last) = undurable.last.entry(key)
                && *last.get() == touched
            {
                last.remove();
            }
        }
        if undurable.queue.is_empty() {
            self.undurable = None;
        }
    }
}

impl<K: Ord + Hash + Clone, V> Table<K, V> {
    /// The value of a key.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.notes.see_key(key);
        self.rows.get(key)
    }

    /// The key with the text of the table, so that copies share it.
    pub(super) fn own_key(&self, key: &K) -> Option<&K> {
        self.rows.get_key_value(key).map(|(own, _)| own)
    }

    /// Whether the key has a value.
    pub(super) fn contains(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.see_all();
        self.rows.len()
    }

    /// Whether the table is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A range, in order.
    pub(super) fn range(&self, range: impl RangeBounds<K>) -> impl Iterator<Item = (&K, &V)> {
        self.see_all();
        self.rows.range(range)
    }

    /// A range, in order, whose changes another table tracks.
    pub(super) fn range_unseen(&self, range: impl RangeBounds<K>) -> impl Iterator<Item = (&K, &V)> {
        self.rows.range(range)
    }

    /// All entries, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.range(..)
    }

    /// Records that the current read depends on every key.
    pub(super) fn see_all(&self) {
        self.notes.see_all();
    }

    /// Sets many values without tracking. Fastest if they are in order and the table is empty.
    pub(super) fn fill(&mut self, rows: Vec<(K, V)>) {
        match self.rows.is_empty() {
            true => self.rows = rows.into_iter().collect(),
            false => self.rows.extend(rows),
        }
    }

    /// Sets a value.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.notes.touch(&key);
        self.rows.insert(key, value)
    }

    /// Removes a value.
    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let value = self.rows.remove(key)?;
        self.notes.touch(key);
        Some(value)
    }

    /// Sets or removes a value.
    pub(super) fn set(&mut self, key: K, value: Option<V>) -> Option<V> {
        match value {
            Some(value) => self.insert(key, value),
            None => self.remove(&key),
        }
    }

    /// A value, to change it.
    pub(super) fn change(&mut self, key: &K) -> Option<&mut V> {
        let value = self.rows.get_mut(key)?;
        self.notes.touch(key);
        Some(value)
    }

    /// A value, to change an unstored part of it.
    pub(super) fn change_unstored(&mut self, key: &K) -> Option<&mut V> {
        self.rows.get_mut(key)
    }

    /// Takes the keys that changed since the last call, each once, with their present values.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (K, Option<&V>)> {
        let keys = self.notes.take();
        keys.into_iter().map(|key| {
            let value = self.rows.get(&key);
            (key, value)
        })
    }

    /// Whether the key has an undurable change.
    pub(super) fn is_undurable(&self, key: &K) -> bool {
        let undurable = self.notes.undurable.as_ref();
        undurable.is_some_and(|undurable| undurable.last.contains_key(key))
    }

    /// The undurable keys, each once.
    pub(super) fn undurable(&self) -> impl Iterator<Item = &K> {
        self.notes.undurable.iter().flat_map(|undurable| {
            let last = |(step, key): &&(u64, K)| undurable.last.get(key) == Some(step);
            undurable.queue.iter().filter(last).map(|(_, key)| key)
        })
    }

    /// The current step; zero if changes are not stored.
    pub(super) fn step(&self) -> u64 {
        self.notes.step
    }
}

impl<K: Ord + Hash + Clone, V> Noted for Table<K, V> {
    /// What a step reads is not looked for: its answer waits for the step itself.
    fn begin(&mut self, step: u64) {
        self.notes.step = step;
        self.notes.seen.set(step);
    }

    fn touched(&self) -> u64 {
        self.notes.touched
    }

    fn seen(&self) -> u64 {
        self.notes.seen.take()
    }

    fn durable(&mut self, step: u64) {
        self.notes.durable(step);
    }

    fn forget_notes(&mut self) {
        let touched = self.notes.touched;
        self.notes = Notes {
            touched,
            ..Notes::default()
        };
    }

    fn backlog(&self) -> usize {
        self.notes
            .undurable
            .as_ref()
            .map_or(0, |undurable| undurable.last.len())
    }
}

/// A single value that tracks its changes.
#[derive(Debug)]
pub(super) struct Tracked<T> {
    value: Option<T>,
    /// The current step; zero for none.
    step: u64,
    /// The last step that changed it, while that is not durable.
    undurable: Option<u64>,
    /// Whether that is in the current commit.
    is_taken: bool,
    touched: u64,
    seen: Cell<u64>,
}

impl<T> Default for Tracked<T> {
    fn default() -> Self {
        Self {
            value: None,
            step: 0,
            undurable: None,
            is_taken: false,
            touched: 0,
            seen: Cell::new(0),
        }
    }
}

impl<T: PartialEq> Tracked<T> {
    pub(super) fn new(value: T) -> Self {
        Self {
            value: Some(value),
            ..Self::default()
        }
    }

    /// The value; `None` if it was never set.
    pub(super) fn get(&self) -> Option<&T> {
        self.seen.set(self.seen.get().max(self.undurable.unwrap_or(0)));
        self.value.as_ref()
    }

    /// Sets the value. An equal one is not a change.
    pub(super) fn set(&mut self, value: Option<T>) {
        if self.value == value {
            return;
        }
        self.value = value;
        if self.step > 0 {
            (self.undurable, self.is_taken, self.touched) = (Some(self.step), false, self.step);
        }
    }

    /// Takes the value if it changed since the last call; `Some(None)` if it was removed.
    pub(super) fn take(&mut self) -> Option<Option<&T>> {
        let is_new = self.undurable.is_some() && !std::mem::replace(&mut self.is_taken, true);
        is_new.then_some(self.value.as_ref())
    }

    /// Whether it has an undurable change.
    pub(super) fn is_undurable(&self) -> bool {
        self.undurable.is_some()
    }
}

impl<T> Noted for Tracked<T> {
    fn begin(&mut self, step: u64) {
        self.step = step;
        self.seen.set(step);
    }

    fn touched(&self) -> u64 {
        self.touched
    }

    fn seen(&self) -> u64 {
        self.seen.take()
    }

    fn durable(&mut self, step: u64) {
        self.undurable.take_if(|undurable| *undurable <= step);
    }

    fn forget_notes(&mut self) {
        (self.step, self.undurable, self.is_taken) = (0, None, false);
        self.seen.set(0);
    }

    fn backlog(&self) -> usize {
        usize::from(self.undurable.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(table: &mut Table<u8, u8>) -> Vec<(u8, Option<u8>)> {
        table.take().map(|(key, value)| (key, value.copied())).collect()
    }

    #[test]
    fn table_without_steps_notes_nothing() {
        let mut table = Table::default();
        table.insert(1, 1);
        table.remove(&1);
        assert_eq!((table.touched(), table.backlog(), taken(&mut table)), (0, 0, vec![]));
    }

    #[test]
    fn take_yields_each_key_once_with_its_present_value() {
        let mut table = Table::default();
        table.begin(1);
        table.insert(1, 10);
        table.insert(2, 20);
        table.begin(2);
        table.insert(1, 11);
        table.remove(&2);
        assert_eq!(taken(&mut table), vec![(1, Some(11)), (2, None)]);
        assert_eq!(taken(&mut table), vec![]);
        table.begin(3);
        *table.change(&1).unwrap() = 12;
        *table.change_unstored(&1).unwrap() = 13;
        assert_eq!(taken(&mut table), vec![(1, Some(13))]);
    }

    #[test]
    fn reads_see_the_newest_step_that_is_not_durable() {
        let mut table = Table::default();
        for step in 1..=3 {
            table.begin(step);
            table.insert(step, step);
        }
        table.begin(4);
        table.remove(&3);
        assert_eq!(table.seen(), 4);
        assert_eq!((table.get(&1), table.seen()), (Some(&1), 1));
        assert_eq!((table.get(&3), table.seen()), (None, 4));
        assert_eq!((table.get(&9), table.seen()), (None, 0));
        assert_eq!((table.len(), table.seen(), table.seen()), (2, 4, 0));
        let _ = table.take().count();
        table.durable(2);
        assert_eq!((table.get(&1), table.get(&2), table.seen()), (Some(&1), Some(&2), 0));
        assert_eq!((table.iter().count(), table.seen(), table.touched()), (2, 4, 4));
        assert_eq!(table.undurable().collect::<Vec<_>>(), vec![&3]);
        table.durable(4);
        assert_eq!(
            (table.len(), table.seen(), table.backlog(), table.touched()),
            (2, 0, 0, 4)
        );
    }

    #[test]
    fn key_changed_after_it_was_taken_stays_undurable() {
        let mut table = Table::default();
        table.begin(1);
        table.insert(1, 1);
        assert_eq!(taken(&mut table), vec![(1, Some(1))]);
        table.begin(2);
        table.insert(1, 2);
        table.durable(1);
        assert!(table.is_undurable(&1));
        assert_eq!(taken(&mut table), vec![(1, Some(2))]);
    }

    #[test]
    fn equal_value_is_not_a_change() {
        let mut tracked = Tracked::new(5);
        tracked.begin(1);
        tracked.set(Some(5));
        assert_eq!((tracked.touched(), tracked.take()), (0, None));
        tracked.set(None);
        assert_eq!((tracked.get(), tracked.seen()), (None, 1));
        assert_eq!(tracked.take(), Some(None));
    }
}
