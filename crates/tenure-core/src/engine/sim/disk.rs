//! A disk in memory that fails on request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::engine::{Commit, Disk, EventPages, Fault, Loaded, Loader, StoredRows};
use crate::error::{Error, Outcome, Result};
use crate::event::{Event, EventPage, EventQuery};
use crate::id::Group;
use crate::memory::rows::{GroupRow, Row, RowKey};
use crate::recall::Recall;

/// What is stored.
#[derive(Debug, Clone, Default)]
pub(super) struct Image {
    pub(super) groups: BTreeMap<Group, Stored>,
    pub(super) recall: Recall,
    longest: Duration,
}

/// What is stored of a group.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) row: GroupRow,
    pub(super) rows: BTreeMap<RowKey, Row>,
    pub(super) events: Vec<Event>,
}

/// What becomes of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Luck {
    /// It is durable.
    #[default]
    Good,
    /// The disk is full or busy: it was rolled back.
    Full,
    /// It failed once, at an unknown point; whether it is stored.
    Doubtful(bool),
    /// A write or a sync failed; whether it is stored.
    Broken(bool),
}

impl Luck {
    /// Whether what was committed is on the disk afterwards.
    pub(super) fn keeps(self) -> bool {
        matches!(self, Self::Good | Self::Doubtful(true) | Self::Broken(true))
    }
}

/// What survives a crash.
#[derive(Debug, Default)]
pub(super) struct Platter(Mutex<State>);

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) image: Image,
    pub(super) luck: Luck,
    /// How often rows were read.
    pub(super) reads: usize,
    /// What the engine has told of its health, newest last.
    pub(super) told: Vec<Option<String>>,
}

impl Platter {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The disk of one engine.
#[derive(Debug)]
pub(super) struct SimDisk(pub(super) Arc<Platter>);

impl Image {
    fn store(&mut self, commit: &Commit) {
        (self.recall, self.longest) = (commit.recall, commit.longest);
        for batch in &commit.batches {
            if batch.forgotten {
                self.groups.remove(&batch.group);
                continue;
            }
            let taken = &batch.taken;
            let stored = self.groups.entry(batch.group.clone()).or_insert_with(|| Stored {
                row: taken.group,
                rows: BTreeMap::new(),
                events: Vec::new(),
            });
            stored.row = taken.group;
            for (key, row) in &taken.rows {
                match row {
                    Some(row) => drop(stored.rows.insert(key.clone(), row.clone())),
                    None => drop(stored.rows.remove(key)),
                }
            }
            stored.events.extend(taken.events.iter().cloned());
        }
    }
}

fn failure(what: &'static str) -> Error {
    Error::unavailable(what, Outcome::Unchanged)
}

impl Disk for SimDisk {
    fn load(&mut self, into: &mut dyn Loader) -> Result<Loaded, Fault> {
        let state = self.0.state();
        for (group, stored) in &state.image.groups {
            into.group(group.clone(), stored.row);
            for (key, row) in &stored.rows {
                into.row(key.clone(), row.clone());
            }
        }
        Ok(Loaded {
            recall: state.image.recall,
            longest: state.image.longest,
        })
    }

    fn commit(&mut self, commit: &Commit) -> Result<(), Fault> {
        let mut state = self.0.state();
        let luck = state.luck;
        if luck.keeps() {
            state.image.store(commit);
        }
        match luck {
            Luck::Good => Ok(()),
            Luck::Full => Err(Fault::RolledBack(failure("the disk is full"))),
            Luck::Doubtful(_) => Err(Fault::Doubtful(failure("the commit failed"))),
            Luck::Broken(_) => Err(Fault::Broken(failure("the sync failed"))),
        }
    }

    fn read(&mut self, group: &Group, keys: &[RowKey]) -> Result<StoredRows, Fault> {
        let mut state = self.0.state();
        state.reads += 1;
        let Some(stored) = state.image.groups.get(group) else {
            return Ok((None, vec![None; keys.len()]));
        };
        let rows = keys.iter().map(|key| stored.rows.get(key).cloned());
        Ok((Some(stored.row), rows.collect()))
    }

    fn note_health(&mut self, trouble: Option<&Error>) {
        self.0
            .state()
            .told
            .push(trouble.map(|error| error.message().to_owned()));
    }
}

#[async_trait]
impl EventPages for Platter {
    async fn page(&self, group: &Group, query: EventQuery) -> Result<EventPage> {
        let state = self.state();
        let all = state.image.groups.get(group).map_or(&[][..], |stored| &stored.events);
        let after = |event: &&Event| query.after.is_none_or(|after| event.id > after);
        let before = |event: &&Event| query.before.is_none_or(|before| event.id < before);
        let events: Vec<Event> = all.iter().filter(after).filter(before).cloned().collect();
        let last = events.last().map(|event| event.id).or(query.after).unwrap_or_default();
        let missed = false;
        Ok(EventPage { events, last, missed })
    }
}
