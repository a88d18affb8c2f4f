//! The work queue of the writer.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::cell::Cell;
use super::disk::Lost;
use crate::error::Result;
use crate::settling::GapCause;
use crate::time::StoreTime;

/// Work of the writer.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Groups with changes that are not on their way to the disk.
    pub(super) dirty: Vec<Arc<Cell>>,
    /// Groups in which a step panicked.
    pub(super) torn: Vec<Arc<Cell>>,
    /// Callers that want to know whether a commit succeeds.
    pub(super) trials: Vec<oneshot::Sender<Result<(), Lost>>>,
    /// An operator's word about groups to come.
    pub(super) settlements: Vec<Settlement>,
    /// A write of the store time was asked for.
    pub(super) keep_time: bool,
    /// The store was asked to close; the callers that wait for it.
    pub(super) is_closing: bool,
    pub(super) closing: Vec<oneshot::Sender<()>>,
}

/// An operator's word that nothing was held, for groups to come.
#[derive(Debug)]
pub(super) struct Settlement {
    pub(super) named: Option<GapCause>,
    pub(super) not_after: Option<StoreTime>,
    pub(super) done: oneshot::Sender<Result<()>>,
}

impl Work {
    fn is_empty(&self) -> bool {
        !self.wants_commit() && self.torn.is_empty() && !self.keep_time && !self.is_closing
    }

    /// Whether a commit is asked for.
    pub(super) fn wants_commit(&self) -> bool {
        !(self.dirty.is_empty() && self.trials.is_empty() && self.settlements.is_empty())
    }
}

/// The queue between callers and the writer.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    work: Work,
    /// The writer has gone; nothing is taken any more.
    is_over: bool,
}

impl Queue {
    /// Adds work. Answers whether there is a writer for it.
    pub(super) fn add(&self, add: impl FnOnce(&mut Work)) -> bool {
        let mut waiting = self.lock();
        if waiting.is_over {
            return false;
        }
        add(&mut waiting.work);
        drop(waiting);
        self.bell.notify_one();
        true
    }

    /// Waits for work, and takes all of it. Takes none once so much time has passed.
    pub(super) fn take(&self, patience: Option<Duration>) -> Work {
        let is_empty = |waiting: &mut Waiting| waiting.work.is_empty();
        let mut waiting = match patience {
            None => {
                let waiting = self.bell.wait_while(self.lock(), is_empty);
                waiting.unwrap_or_else(PoisonError::into_inner)
            }
            Some(patience) => {
                let waiting = self.bell.wait_timeout_while(self.lock(), patience, is_empty);
                waiting.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        std::mem::take(&mut waiting.work)
    }

    /// Whether no work waits.
    pub(super) fn is_idle(&self) -> bool {
        self.lock().work.is_empty()
    }

    /// Closes the queue. Answers the remaining work.
    pub(super) fn end(&self) -> Work {
        let mut waiting = self.lock();
        waiting.is_over = true;
        std::mem::take(&mut waiting.work)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
