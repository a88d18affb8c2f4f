//! A disk in memory whose commits can be held and made to fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::engine::{Commit, Disk, EventPages, Fault, Loaded, Loader, StoredRows};
use crate::error::{Error, Outcome, Result};
use crate::event::{Event, EventPage, EventQuery};
use crate::id::Group;
use crate::memory::rows::{GroupRow, Row, RowKey};

/// What the next commits come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Luck {
    Good,
    /// Rolled back, as on a full disk.
    Full,
    /// Durable, and reported as doubtful.
    Doubtful,
    /// A failed sync.
    Broken,
    /// A failed sync after the commit, when its log is copied.
    BrokenLater,
    /// A bug of the disk.
    Panics,
}

#[derive(Debug, Default)]
struct Kept {
    group: Option<GroupRow>,
    rows: BTreeMap<RowKey, Row>,
    events: Vec<Event>,
}

#[derive(Debug)]
struct State {
    groups: BTreeMap<Group, Kept>,
    luck: Luck,
    is_held: bool,
    /// A commit waits for being let through.
    waits: bool,
    commits: u64,
    trouble: Vec<bool>,
    is_closed: bool,
}

/// The platter: it outlives the engines on it.
#[derive(Debug)]
pub(super) struct Platter {
    state: Mutex<State>,
    changed: Condvar,
}

impl Platter {
    pub(super) fn new() -> Arc<Self> {
        let state = State {
            groups: BTreeMap::new(),
            luck: Luck::Good,
            is_held: false,
            waits: false,
            commits: 0,
            trouble: Vec::new(),
            is_closed: false,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn be(&self, luck: Luck) {
        self.lock().luck = luck;
    }

    /// Holds commits back, or lets them through.
    pub(super) fn hold(&self, hold: bool) {
        self.lock().is_held = hold;
        self.changed.notify_all();
    }

    /// Waits until a commit is being held back.
    pub(super) fn wait_for_commit(&self) {
        drop(self.changed.wait_while(self.lock(), |state| !state.waits).unwrap());
    }

    pub(super) fn commits(&self) -> u64 {
        self.lock().commits
    }

    /// How the health changed, in order: `true` for trouble.
    pub(super) fn trouble(&self) -> Vec<bool> {
        self.lock().trouble.clone()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    pub(super) fn rows(&self, group: &Group) -> usize {
        self.lock().groups.get(group).map_or(0, |kept| kept.rows.len())
    }
}

/// The disk of one engine.
pub(super) struct TinyDisk(pub(super) Arc<Platter>);

impl Disk for TinyDisk {
    fn load(&mut self, into: &mut dyn Loader) -> Result<Loaded, Fault> {
        for (group, kept) in &self.0.lock().groups {
            into.group(group.clone(), kept.group.expect("a row of the group"));
            kept.rows
                .iter()
                .for_each(|(key, row)| into.row(key.clone(), row.clone()));
        }
        Ok(Loaded::default())
    }

    fn commit(&mut self, commit: &Commit) -> Result<(), Fault> {
        let mut state = self.0.lock();
        state.waits = state.is_held;
        self.0.changed.notify_all();
        let mut state = self.0.changed.wait_while(state, |state| state.is_held).unwrap();
        state.waits = false;
        state.commits += 1;
        let error = |message: &'static str, outcome| Error::unavailable(message, outcome);
        match state.luck {
            Luck::Full => return Err(Fault::RolledBack(error("the disk is full", Outcome::Unchanged))),
            Luck::Broken => return Err(Fault::Broken(error("a sync failed", Outcome::Unknown))),
            Luck::Panics => panic!("on purpose"),
            Luck::Good | Luck::Doubtful | Luck::BrokenLater => {}
        }
        for batch in &commit.batches {
            if batch.forgotten {
                state.groups.remove(&batch.group);
                continue;
            }
            let kept = state.groups.entry(batch.group.clone()).or_default();
            kept.group = Some(batch.taken.group);
            kept.events.extend(batch.taken.events.iter().cloned());
            for (key, row) in &batch.taken.rows {
                match row {
                    Some(row) => drop(kept.rows.insert(key.clone(), row.clone())),
                    None => drop(kept.rows.remove(key)),
                }
            }
        }
        match state.luck {
            Luck::Doubtful => Err(Fault::Doubtful(error("the file was moved", Outcome::Unknown))),
            _ => Ok(()),
        }
    }

    fn read(&mut self, group: &Group, keys: &[RowKey]) -> Result<StoredRows, Fault> {
        let state = self.0.lock();
        Ok(match state.groups.get(group) {
            Some(kept) => (kept.group, keys.iter().map(|key| kept.rows.get(key).cloned()).collect()),
            None => (None, Vec::new()),
        })
    }

    fn tidy(&mut self, _idle: bool) -> Result<()> {
        match self.0.lock().luck {
            Luck::BrokenLater => Err(Error::unavailable("a later sync failed", Outcome::Unknown)),
            _ => Ok(()),
        }
    }

    fn note_health(&mut self, trouble: Option<&Error>) {
        self.0.lock().trouble.push(trouble.is_some());
    }

    fn close(&mut self) {
        self.0.lock().is_closed = true;
    }
}

/// The events on it.
pub(super) struct TinyPages(pub(super) Arc<Platter>);

#[async_trait]
impl EventPages for TinyPages {
    async fn page(&self, group: &Group, query: EventQuery) -> Result<EventPage> {
        let state = self.0.lock();
        let events = state.groups.get(group).into_iter().flat_map(|kept| &kept.events);
        let events = events.filter(|event| query.after.is_none_or(|after| event.id > after));
        let events: Vec<Event> = events.take(query.limit as usize).cloned().collect();
        Ok(EventPage {
            last: events.last().map(|event| event.id).or(query.after).unwrap_or_default(),
            events,
            missed: false,
        })
    }
}
