//! The registrations of this process on disk, for its successors.
//!
//! One small file per process. It is written atomically and synced before the registration is made, and locked while
//! the process lives (the kernel releases the lock with the process). So a file that can be locked belongs to a dead
//! process, and its registration must be removed. Files of living processes in the same directory stay locked and are
//! left alone.
//!
//! The disk never blocks the supervisor: every call has a deadline, and if the journal fails, the service is registered
//! without it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::clock::Clock;

use crate::blocking_thread::BlockingThread;

/// The timeout of a disk operation.
const BOUND: Duration = Duration::from_millis(500);
/// The limit of files read in one search; the rest waits for the next start.
const MOST: usize = 100;
/// The files are `registration-<life>.json`.
const NAME: (&str, &str) = ("registration-", ".json");
/// A registration takes a few hundred bytes; a much larger file is not ours.
const LONGEST: u64 = 64 * 1024;

/// One registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalEntry {
    /// The agent's address.
    pub(crate) agent: String,
    /// The service's id.
    pub(crate) id: String,
    /// The life of the service that made it.
    pub(crate) life: String,
}

/// A file of a dead process. It stays locked while this value lives, so that two successors do not do the same work.
#[derive(Debug)]
pub(crate) struct Leftover {
    pub(crate) entry: JournalEntry,
    /// A failed removal was reported.
    pub(crate) reported: bool,
    path: PathBuf,
    _lock: File,
}

#[derive(Debug)]
pub(crate) struct Journal {
    dir: Option<PathBuf>,
    clock: Arc<dyn Clock>,
    disk: BlockingThread,
    /// The file of this process, with its lock.
    own: Arc<Mutex<Option<File>>>,
}

impl Journal {
    pub(crate) fn open(dir: Option<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            dir,
            clock,
            disk: BlockingThread::start("journal"),
            own: Arc::default(),
        }
    }

    /// Writes a registration before it is made. Returns whether it is on disk.
    pub(crate) async fn write(&self, entry: &JournalEntry) -> bool {
        let Some(dir) = self.dir.clone() else { return false };
        let (entry, own) = (entry.clone(), Arc::clone(&self.own));
        self.try_to("write", move || {
            let file = write(&dir, &entry)?;
            *own.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
            Ok(())
        })
        .await
        .is_some()
    }

    /// Removes our entry: the registration is confirmed gone.
    pub(crate) async fn remove(&self, life: &str) {
        let Some(path) = self.dir.as_deref().map(|dir| path_of(dir, life)) else {
            return;
        };
        let own = Arc::clone(&self.own);
        self.try_to("remove", move || {
            let lock = own.lock().unwrap_or_else(PoisonError::into_inner).take();
            if lock.is_some() {
                fs::remove_file(&path)?;
            }
            Ok(())
        })
        .await;
    }

    /// Whether a journal is configured.
    pub(crate) fn is_kept(&self) -> bool {
        self.dir.is_some()
    }

    /// Whether an entry of ours is on disk.
    pub(crate) fn holds(&self) -> bool {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The entries of dead processes.
    pub(crate) async fn leftovers(&self) -> Vec<Leftover> {
        let Some(dir) = self.dir.clone() else { return Vec::new() };
        self.try_to("read", move || leftovers(&dir)).await.unwrap_or_default()
    }

    /// Removes a leftover entry: its registration is confirmed gone.
    pub(crate) async fn remove_leftover(&self, leftover: Leftover) {
        self.try_to("remove", move || fs::remove_file(&leftover.path)).await;
    }

    async fn try_to<T: Send + 'static>(
        &self,
        what: &'static str,
        act: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Option<T> {
        let done = self.disk.run(&*self.clock, BOUND, act).await;
        let error = match done {
            Ok(Ok(done)) => return Some(done),
            Ok(Err(error)) => error.to_string(),
            Err(missed) => missed.to_string(),
        };
        tracing::warn!(dir = ?self.dir, what, error, "the journal of registrations cannot be used");
        None
    }
}

fn path_of(dir: &Path, life: &str) -> PathBuf {
    dir.join(format!("{}{life}{}", NAME.0, NAME.1))
}

/// Writes a temporary file, syncs and locks it, and renames it into place. Returns the locked file.
fn write(dir: &Path, entry: &JournalEntry) -> io::Result<File> {
    fs::create_dir_all(dir)?;
    let mut beside = tempfile::Builder::new().prefix(".registration-").tempfile_in(dir)?;
    beside.as_file().lock()?;
    serde_json::to_writer(&mut beside, entry)?;
    beside.flush()?;
    beside.as_file().sync_all()?;
    let file = beside.persist(path_of(dir, &entry.life)).map_err(|error| error.error)?;
    File::open(dir)?.sync_all()?;
    Ok(file)
}

fn leftovers(dir: &Path) -> io::Result<Vec<Leftover>> {
    let listed = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed?,
    };
    let mut found = Vec::new();
    for file in listed {
        let file = file?;
        let name = file.file_name();
        let ours = name
            .to_str()
            .is_some_and(|name| name.starts_with(NAME.0) && name.ends_with(NAME.1));
        if !ours || found.len() == MOST {
            continue;
        }
        match left(&file.path()) {
            Ok(leftover) => found.extend(leftover),
            Err(error) => tracing::warn!(path = %file.path().display(), %error, "cannot read a journal file"),
        }
    }
    Ok(found)
}

/// The entry in a file, if its owner is dead.
fn left(path: &Path) -> io::Result<Option<Leftover>> {
    let file = File::open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    if file.metadata()?.len() > LONGEST {
        return Err(io::Error::other("too large"));
    }
    let entry = serde_json::from_reader(&file)?;
    Ok(Some(Leftover {
        entry,
        reported: false,
        path: path.to_owned(),
        _lock: file,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::clock::SystemClock;

    fn entry(life: &str) -> JournalEntry {
        JournalEntry {
            agent: "http://127.0.0.1:8500".to_owned(),
            id: "web-1".to_owned(),
            life: life.to_owned(),
        }
    }

    fn open(dir: &Path) -> Journal {
        Journal::open(Some(dir.to_owned()), SystemClock::shared())
    }

    #[tokio::test]
    async fn only_entries_of_dead_processes_are_leftovers() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("not/there/yet");
        let (one, other) = (open(&dir), open(&dir));
        assert!(one.leftovers().await.is_empty());
        assert!(one.write(&entry("a")).await && one.write(&entry("a")).await);
        assert!(other.leftovers().await.is_empty(), "its owner is alive");
        drop(one);
        let mut left = other.leftovers().await;
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].entry, entry("a"));
        assert!(open(&dir).leftovers().await.is_empty(), "another process has locked it");
        other.remove_leftover(left.remove(0)).await;
        assert!(open(&dir).leftovers().await.is_empty());
    }

    #[tokio::test]
    async fn removed_entry_is_not_a_leftover() {
        let home = tempfile::tempdir().unwrap();
        let journal = open(home.path());
        journal.write(&entry("a")).await;
        journal.remove("a").await;
        drop(journal);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn unreadable_file_does_not_hide_other_entries() {
        let home = tempfile::tempdir().unwrap();
        for (name, content) in [
            ("registration-x.json", "{"),
            ("registration-y.json", ""),
            ("other", "{}"),
        ] {
            fs::write(home.path().join(name), content).unwrap();
        }
        let journal = open(home.path());
        journal.write(&entry("a")).await;
        drop(journal);
        assert_eq!(open(home.path()).leftovers().await.len(), 1);
        // An impossible directory disables the journal and nothing else.
        let nowhere = open(Path::new("/proc/nowhere"));
        assert!(!nowhere.write(&entry("a")).await && nowhere.leftovers().await.is_empty());
    }
}
