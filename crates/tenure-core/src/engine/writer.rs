//! The one thread that uses the disk: group commit, and what follows from its outcome.
//!
//! It takes what all groups have changed since the last commit, each group under its own lock, and makes it durable at
//! once; then the calls that waited are answered. While it does so the next changes gather. Changes whose commit failed
//! are taken back (`recover`): exactly the rows that are not durable are read again, under the lock of their group.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::Shared;
use super::cell::{Cell, stopped};
use super::disk::{Commit, Disk, Fault, Lost};
use super::queue::{Settlement, Work};
use crate::error::{Error, ErrorKind, Outcome};
use crate::recall::Recall;

/// How often a commit is tried while writes are refused and no call asks for one.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// The writer of an engine.
pub(super) struct Writer<D: Disk> {
    disk: D,
    pub(super) shared: Arc<Shared>,
}

/// A group in a commit, and the number of its newest step in there.
type Share = (Arc<Cell>, u64);

/// A commit that has begun.
pub(super) struct Begun {
    pub(super) commit: Commit,
    pub(super) shares: Vec<Share>,
    work: Work,
    /// Whether the store may have forgotten something, before this commit.
    before: Recall,
}

/// A fault after which nothing is served: the rest of the work is left alone.
pub(super) struct Broken;

impl<D: Disk> Writer<D> {
    pub(super) fn new(disk: D, shared: Arc<Shared>) -> Self {
        Self { disk, shared }
    }

    /// Serves until the store is closed or the disk breaks.
    pub(super) fn run(mut self) {
        loop {
            let refuses = self.shared.service.refuses_writes();
            let mut work = self.shared.queue.take(refuses.then_some(RETRY_EVERY));
            let is_closing = work.is_closing;
            let mut closing = std::mem::take(&mut work.closing);
            if self.serve(work).is_err() {
                return;
            }
            if is_closing {
                let mut rest = self.shared.queue.end();
                closing.append(&mut rest.closing);
                if self.serve(rest).is_ok() {
                    self.disk.close();
                }
                self.finish(closing);
                return;
            }
        }
    }

    /// Releases the disk, and then wakes the callers that wait for it.
    fn finish(self, closing: Vec<oneshot::Sender<()>>) {
        drop(self);
        for done in closing {
            // The caller may have given up.
            let _ = done.send(());
        }
    }

    fn serve(&mut self, work: Work) -> Result<(), Broken> {
        // While writes are refused, a commit is tried without being asked for.
        let wants_commit = work.wants_commit() || self.shared.service.refuses_writes();
        let keep_time = work.keep_time;
        for cell in &work.torn {
            self.mend(cell)?;
        }
        if wants_commit {
            let begun = self.begin(work);
            self.complete(begun)?;
        }
        // A disk that takes no commit takes no mark; that was said once.
        let kept = match keep_time && !self.shared.service.refuses_writes() {
            true => self.disk.keep_time(self.shared.clock.now()),
            false => Ok(()),
        };
        let tidied = kept.and_then(|()| self.disk.tidy(self.shared.queue.is_idle()));
        tidied.map_err(|error| self.break_down(error, &[]))
    }

    /// Takes everything that has changed.
    pub(super) fn begin(&mut self, mut work: Work) -> Begun {
        let at = self.shared.clock.now();
        let (mut shares, mut batches) = (Vec::new(), Vec::new());
        for cell in work.dirty.drain(..) {
            let taken = cell.lock().take(&cell.group);
            if let Some((batch, number)) = taken {
                batches.push(batch);
                shares.push((cell, number));
            }
        }
        let ttls = batches.iter().filter_map(|batch| batch.taken.group.ttls);
        let longest = ttls.map(|(_, longest)| longest).max().unwrap_or(Duration::ZERO);
        let (before, longest) = self.shared.doubts.kept(longest);
        let mut recall = before;
        let late = |settlement: &mut Settlement| settlement.not_after.is_some_and(|limit| at > limit);
        for settlement in work.settlements.extract_if(.., late) {
            let _ = settlement.done.send(Err(Error::too_late()));
        }
        for settlement in &work.settlements {
            recall.settle(settlement.named);
        }
        let commit = Commit {
            at,
            recall,
            longest,
            batches,
        };
        Begun {
            commit,
            shares,
            work,
            before,
        }
    }

    /// Makes it durable.
    pub(super) fn complete(&mut self, begun: Begun) -> Result<(), Broken> {
        let Begun {
            commit,
            shares,
            work,
            before,
        } = begun;
        let disk = AssertUnwindSafe(&mut self.disk);
        let done = catch_unwind(move || { disk }.commit(&commit).map(|()| commit));
        match done.unwrap_or_else(|panic| Err(Fault::Doubtful(panicked(&*panic)))) {
            Ok(commit) => {
                self.publish(shares, &commit);
                self.answer(work, before);
                Ok(())
            }
            Err(fault) => self.recover(shares, work, fault),
        }
    }

    /// Lets out what became durable.
    fn publish(&mut self, shares: Vec<Share>, commit: &Commit) {
        if self.shared.service.recover() {
            self.disk.note_health(None);
        }
        for ((cell, number), batch) in shares.into_iter().zip(&commit.batches) {
            let mut state = cell.lock();
            let was_kept = state.is_kept;
            let open = state.durable(number);
            state.recount(&self.shared.backlog);
            state.publish(batch.taken.group.last_event);
            let (is_gone, has_turns) = (state.is_gone(), state.model.has_turns());
            drop(state);
            if has_turns {
                self.shared.groups.note_turns(&cell.group);
            }
            if is_gone {
                self.shared.groups.remove(&cell);
                let mut due = self.shared.due.lock().unwrap_or_else(PoisonError::into_inner);
                due.set(&cell.group, None);
                drop(due);
                self.shared.groups.note_forgotten(&cell.group);
            } else if !was_kept {
                self.shared.groups.note_birth(&cell.group);
            }
            for (_, waiter) in open {
                // The caller may have given up.
                let _ = waiter.send(Ok(()));
            }
        }
    }

    fn answer(&self, work: Work, before: Recall) {
        for trial in work.trials {
            let _ = trial.send(Ok(()));
        }
        for Settlement { named, done, .. } in work.settlements {
            self.shared.doubts.settle(named, before);
            let _ = done.send(Ok(()));
        }
    }

    /// Takes back what was in a commit that failed.
    fn recover(&mut self, shares: Vec<Share>, work: Work, fault: Fault) -> Result<(), Broken> {
        let (error, outcome) = match fault {
            Fault::Broken(error) => return Err(self.break_down(error, &shares)),
            Fault::RolledBack(error) => (Arc::new(error), Outcome::Unchanged),
            Fault::Doubtful(error) => (Arc::new(error), Outcome::Unknown),
        };
        if self.shared.service.refuse_writes(&error) {
            self.disk.note_health(Some(&error));
        }
        let (of_commit, later) = (Lost::new(&error, outcome), Lost::new(&error, Outcome::Unchanged));
        for (cell, number) in &shares {
            self.put_back(cell, *number, &of_commit, &later)?;
        }
        for trial in work.trials {
            let _ = trial.send(Err(later.clone()));
        }
        for settlement in work.settlements {
            let _ = settlement.done.send(Err(of_commit.to_error()));
        }
        Ok(())
    }

    /// Takes back what a step that panicked has changed, with the steps before it that are not durable.
    pub(super) fn mend(&mut self, cell: &Arc<Cell>) -> Result<(), Broken> {
        let message = "a step of this group panicked, and what was not on disk was undone; please report it";
        let lost = Lost::new(
            &Arc::new(Error::unavailable(message, Outcome::Unchanged)),
            Outcome::Unchanged,
        );
        self.put_back(cell, 0, &lost, &lost)
    }

    /// Reads the rows of a group again that are not durable.
    fn put_back(&mut self, cell: &Arc<Cell>, number: u64, of_commit: &Lost, later: &Lost) -> Result<(), Broken> {
        let mut state = cell.lock();
        if state.is_gone() {
            return Ok(());
        }
        let began = self.shared.clock.now();
        let work = AssertUnwindSafe(|| {
            let keys = state.model.undurable();
            let stored = self.disk.read(&cell.group, &keys)?;
            state.put_back(stored, keys);
            Ok(())
        });
        let done = catch_unwind(work).unwrap_or_else(|panic| Err(Fault::Broken(panicked(&*panic))));
        if let Err(fault) = done {
            drop(state);
            return Err(self.break_down(fault.into_error(), &[(Arc::clone(cell), number)]));
        }
        state.lose(number, of_commit, later);
        let now = self.shared.clock.now();
        state.mended(began, now);
        self.shared.note_due(&cell.group, &mut state, now);
        state.recount(&self.shared.backlog);
        if state.is_gone() {
            drop(state);
            self.shared.groups.remove(cell);
        }
        Ok(())
    }

    /// Refuses everything from now on. What was in the commit may have become durable or not.
    fn break_down(&mut self, error: Error, shares: &[Share]) -> Broken {
        let error = Arc::new(error);
        if self.shared.service.break_down(&error) {
            self.disk.note_health(Some(&error));
        }
        let (unknown, unchanged) = (Lost::for_good(&error), Lost::never(&error));
        for (cell, number) in shares {
            cell.lock().abandon(*number, &unknown, &unchanged);
        }
        Broken
    }
}

impl<D: Disk> Drop for Writer<D> {
    /// However the writer ends, no caller waits for it any more.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.service.break_down(&stopped());
        }
        self.shared.end();
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
    let error = Error::new(
        ErrorKind::Internal,
        "the writer of the store panicked; please report it",
    );
    error.because(message.unwrap_or_default())
}
