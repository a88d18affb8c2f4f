//! An open file: its lock, its clock, its health.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::error::Outcome;
use tenure_core::store::Health;
use tenure_core::{Error, Result};

use crate::error::{Cause, closed};
use crate::file::Kind;
use crate::lock::{LockFile, Owner};
use crate::watch::Watch;
use tenure_core::engine::StoreClock;

/// How often the clock's high-water mark is written while the file is used.
const KEEP_EVERY: Duration = Duration::from_secs(1);

/// What the users of a file, its writer and its readers share.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) kind: &'static Kind,
    pub(crate) path: PathBuf,
    pub(crate) clock: Arc<StoreClock>,
    /// Whether the file is still the one at its path.
    pub(crate) watch: Watch,
    /// What went wrong last, until something goes right.
    trouble: Mutex<Option<String>>,
    closed: AtomicBool,
    /// When to write the high-water mark next, in µs of the file's clock.
    next_keep: AtomicU64,
    lock: Mutex<Option<LockFile>>,
}

impl OpenFile {
    /// A file that was opened under this lock.
    pub(crate) fn new(
        kind: &'static Kind,
        path: PathBuf,
        clock: Arc<StoreClock>,
        lock: LockFile,
        beside: Vec<PathBuf>,
    ) -> Self {
        Self {
            kind,
            watch: Watch::new(&path, beside),
            path,
            clock,
            trouble: Mutex::new(None),
            closed: AtomicBool::new(false),
            next_keep: AtomicU64::new(0),
            lock: Mutex::new(Some(lock)),
        }
    }

    /// Writes down where this process serves what is in the file.
    pub(crate) fn set_address(&self, listen: &str) -> Result<()> {
        match &mut *guard(&self.lock) {
            Some(lock) => lock.tell(Some(listen)).map_err(|error| {
                Error::unavailable(
                    "the lock file beside the SQLite file cannot be written",
                    Outcome::Unchanged,
                )
                .because(error)
            }),
            None => Err(closed()),
        }
    }

    /// The owner as the lock file names it: this process.
    pub(crate) fn owner(&self) -> Option<Owner> {
        guard(&self.lock).as_ref().map(|lock| lock.owner().clone())
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        // A damaged log also closes the file; the damage is the reason.
        self.watch.check()?;
        if self.is_closed() {
            return Err(closed());
        }
        Ok(())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Looks whether the file is in its place; `done` is what has become of the transaction by now.
    pub(crate) fn look(&self, done: Outcome) -> Result<(), Cause> {
        match self.watch.look(|| self.is_closed()) {
            Some(wrong) => Err(Cause::Astray(wrong, done)),
            None => Ok(()),
        }
    }

    pub(crate) fn health(&self) -> Health {
        if let Err(error) = self.check_open() {
            return Health::Down {
                reason: error.to_string(),
            };
        }
        match &*guard(&self.trouble) {
            Some(reason) => Health::Down { reason: reason.clone() },
            None => Health::Up,
        }
    }

    pub(crate) fn note_health(&self, failed: Option<&Cause>) {
        if matches!(failed, Some(Cause::Astray(..))) {
            // The watch reports it, and clears it.
            return;
        }
        *guard(&self.trouble) = failed.map(|cause| cause.to_error().chain());
    }

    /// Whether the high-water mark is due; if so, the caller writes it.
    pub(crate) fn is_time_to_keep(&self) -> bool {
        let now = self.clock.now();
        let due = self.next_keep.load(Ordering::Relaxed);
        let next = (now + KEEP_EVERY).micros();
        now.micros() >= due
            && self
                .next_keep
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// From here on no call is served, and the files may leave their places. Answers whether it was open.
    pub(crate) fn begin_to_close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    /// Releases the lock. The connections are closed by now.
    pub(crate) fn release(&self) {
        self.watch.release();
        guard(&self.lock).take();
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
