//! What an engine needs of the place where rows are kept, and what can go wrong there.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::{Error, Outcome, Result};
use crate::event::{EventPage, EventQuery};
use crate::id::Group;
use crate::memory::rows::{GroupRow, Row, RowKey, Taken};
use crate::recall::Recall;
use crate::time::StoreTime;

/// Rows on a disk. One thread uses it, the writer of an [`Engine`](super::Engine); it decides nothing.
pub trait Disk: Send + 'static {
    /// Reads everything. Called once, before any other method.
    ///
    /// # Errors
    /// Any fault; the engine does not start.
    fn load(&mut self, into: &mut dyn Loader) -> Result<Loaded, Fault>;

    /// Makes a commit durable: all of its batches, or none. One without batches shows whether writes are possible.
    ///
    /// # Errors
    /// What is known of the outcome.
    fn commit(&mut self, commit: &Commit) -> Result<(), Fault>;

    /// Reads rows as they are durable. The row of the group is `None` when no commit has made the group, or one has
    /// removed it.
    ///
    /// # Errors
    /// Any fault; nothing is served after it.
    fn read(&mut self, group: &Group, keys: &[RowKey]) -> Result<StoredRows, Fault>;

    /// Writes down that store time has come this far. Losing it is harmless, so it need not wait for the disk.
    ///
    /// # Errors
    /// A write or a sync failed in a way after which the disk cannot be trusted; nothing is served after it. Any other failure
    /// is not reported.
    fn keep_time(&mut self, _now: StoreTime) -> Result<(), Error> {
        Ok(())
    }

    /// Housekeeping after a commit; `idle` when no other waits.
    ///
    /// # Errors
    /// As [`Disk::keep_time`].
    fn tidy(&mut self, _idle: bool) -> Result<(), Error> {
        Ok(())
    }

    /// The outcome of the commits changed: they fail, for this reason, or they succeed again. Called once for each change.
    fn note_health(&mut self, _trouble: Option<&Error>) {}

    /// The last call. Everything was committed.
    fn close(&mut self) {}
}

/// Pages of events, read beside the writer. They show what is durable when they are read, or more.
#[async_trait]
pub trait EventPages: Send + Sync + 'static {
    /// Reads a page of the events of a group. A group without a row has none.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn page(&self, group: &Group, query: EventQuery) -> Result<EventPage>;
}

/// The stored row of a group, and the rows asked for in their order; `None` for one that is not there.
pub type StoredRows = (Option<GroupRow>, Vec<Option<Row>>);

/// Takes what a disk holds.
pub trait Loader {
    /// The next group. The rows that follow are of this one.
    fn group(&mut self, group: Group, row: GroupRow);

    /// A row of the group.
    fn row(&mut self, key: RowKey, row: Row);
}

/// What is known of a disk as a whole when an engine starts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Loaded {
    /// Whether it is whole or may have forgotten something.
    pub recall: Recall,
    /// The longest ttl that was ever served.
    pub longest: Duration,
}

/// The contents of one commit.
#[derive(Debug)]
pub struct Commit {
    /// Store time of the commit.
    pub at: StoreTime,
    /// Whether the store is whole or may have forgotten something, from now on.
    pub recall: Recall,
    /// The longest ttl that was ever served.
    pub longest: Duration,
    /// The changes, one batch for each group.
    pub batches: Vec<Batch>,
}

/// The changes of one group: whole steps.
#[derive(Debug)]
pub struct Batch {
    /// Its name.
    pub group: Group,
    /// Its rows and events.
    pub taken: Taken,
    /// The group is removed, with all that is stored of it.
    pub forgotten: bool,
}

/// Why a disk failed, by what is known of the outcome.
#[derive(Debug)]
pub enum Fault {
    /// Nothing happened: it was rolled back before it could become durable.
    RolledBack(Error),
    /// It may have become durable. Reading shows what holds from now on.
    Doubtful(Error),
    /// The disk cannot be trusted any more: a write or a sync has failed. Nothing may be served after it.
    Broken(Error),
}

impl Fault {
    /// What happened.
    #[must_use]
    pub fn error(&self) -> &Error {
        match self {
            Self::RolledBack(error) | Self::Doubtful(error) | Self::Broken(error) => error,
        }
    }

    pub(super) fn into_error(self) -> Error {
        match self {
            Self::RolledBack(error) | Self::Doubtful(error) | Self::Broken(error) => error,
        }
    }
}

/// Why changes were lost, for all callers that waited for them.
#[derive(Debug, Clone)]
pub(super) struct Lost {
    error: Arc<Error>,
    outcome: Outcome,
    /// Nothing is served any more.
    pub(super) for_good: bool,
}

impl Lost {
    pub(super) fn new(error: &Arc<Error>, outcome: Outcome) -> Self {
        Self {
            error: Arc::clone(error),
            outcome,
            for_good: false,
        }
    }

    /// Nothing is served any more; the outcome of changes in progress is unknown.
    pub(super) fn for_good(error: &Arc<Error>) -> Self {
        Self {
            for_good: true,
            ..Self::new(error, Outcome::Unknown)
        }
    }

    /// Nothing is served any more, and nothing happened.
    pub(super) fn never(error: &Arc<Error>) -> Self {
        Self {
            for_good: true,
            ..Self::new(error, Outcome::Unchanged)
        }
    }

    /// The error for a caller whose change was lost.
    pub(super) fn to_error(&self) -> Error {
        copy(&self.error, self.outcome)
    }
}

/// The same error for another caller.
pub(super) fn copy(error: &Error, outcome: Outcome) -> Error {
    let message = error.message().to_owned();
    let cause = error.chain().split_off(message.len());
    let copy = match error.is_unavailable() {
        true => Error::unavailable(message, outcome),
        false => Error::new(error.kind(), message),
    };
    match cause.strip_prefix(": ") {
        Some(cause) => copy.because(cause.to_owned()),
        None => copy,
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error().chain())
    }
}
