//! What this process has registered, on disk, for whoever comes after it.
//!
//! One small file per process, written as a whole and synced before the registration is made, and locked for as long as
//! the process lives (the system drops the lock with it). So a file whose lock can be had is of the dead, and what it
//! names is to be removed; the files of the living, also of those that share the directory, are left alone.
//!
//! The disk is never in the way: every call has a deadline, and a registration is made without a journal rather than not.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::clock::Clock;

use crate::off_thread::OffThread;

/// How long the disk may take.
const BOUND: Duration = Duration::from_millis(500);
/// At most this many files of the dead are looked at; the rest waits for the next start.
const MOST: usize = 100;
/// The files are `registration-<life>.json`.
const NAME: (&str, &str) = ("registration-", ".json");
/// A registration is some hundred bytes; what is much larger is none of ours.
const LONGEST: u64 = 64 * 1024;

/// One registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The agent that it was made at.
    pub(crate) agent: String,
    /// The service's id.
    pub(crate) id: String,
    /// Which life of the service made it.
    pub(crate) life: String,
}

/// A file of a process that is no more. Locked while it is held, so that two successors do not do the same work.
#[derive(Debug)]
pub(crate) struct Leftover {
    pub(crate) entry: Entry,
    /// It could not be removed, and that was said.
    pub(crate) told: bool,
    path: PathBuf,
    _lock: File,
}

/// The journal of this process.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: Option<PathBuf>,
    clock: Arc<dyn Clock>,
    disk: OffThread,
    /// Our own file, with its lock.
    own: Arc<Mutex<Option<File>>>,
}

impl Journal {
    pub(crate) fn open(dir: Option<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            dir,
            clock,
            disk: OffThread::start("journal"),
            own: Arc::default(),
        }
    }

    /// Writes down a registration that is about to be made. Answers whether it is on disk.
    pub(crate) async fn write(&self, entry: &Entry) -> bool {
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

    /// Strikes our registration out: it is known to be gone.
    pub(crate) async fn strike(&self, life: &str) {
        let Some(path) = self.dir.as_deref().map(|dir| path_of(dir, life)) else {
            return;
        };
        let own = Arc::clone(&self.own);
        self.try_to("strike", move || {
            let lock = own.lock().unwrap_or_else(PoisonError::into_inner).take();
            if lock.is_some() {
                fs::remove_file(&path)?;
            }
            Ok(())
        })
        .await;
    }

    /// Whether there is a journal at all.
    pub(crate) fn is_kept(&self) -> bool {
        self.dir.is_some()
    }

    /// Whether a registration of ours is on disk.
    pub(crate) fn holds(&self) -> bool {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// What the dead have left.
    pub(crate) async fn leftovers(&self) -> Vec<Leftover> {
        let Some(dir) = self.dir.clone() else { return Vec::new() };
        self.try_to("read", move || leftovers(&dir)).await.unwrap_or_default()
    }

    /// Strikes out what was left, and is known to be gone now.
    pub(crate) async fn settle(&self, leftover: Leftover) {
        self.try_to("strike", move || fs::remove_file(&leftover.path)).await;
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

/// Writes a file beside, syncs and locks it, and puts it in its place; answers it with its lock.
fn write(dir: &Path, entry: &Entry) -> io::Result<File> {
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
            Err(error) => tracing::warn!(path = %file.path().display(), %error, "a journal that cannot be read"),
        }
    }
    Ok(found)
}

/// What a file has, when its owner is dead.
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
        told: false,
        path: path.to_owned(),
        _lock: file,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::clock::SystemClock;

    fn entry(life: &str) -> Entry {
        Entry {
            agent: "http://127.0.0.1:8500".to_owned(),
            id: "web-1".to_owned(),
            life: life.to_owned(),
        }
    }

    fn open(dir: &Path) -> Journal {
        Journal::open(Some(dir.to_owned()), SystemClock::shared())
    }

    #[tokio::test]
    async fn what_the_living_have_registered_is_theirs_and_what_the_dead_have_is_left() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("not/there/yet");
        let (one, other) = (open(&dir), open(&dir));
        assert!(one.leftovers().await.is_empty());
        assert!(one.write(&entry("a")).await && one.write(&entry("a")).await);
        assert!(other.leftovers().await.is_empty(), "its owner lives");
        drop(one);
        let mut left = other.leftovers().await;
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].entry, entry("a"));
        assert!(open(&dir).leftovers().await.is_empty(), "somebody is at it");
        other.settle(left.remove(0)).await;
        assert!(open(&dir).leftovers().await.is_empty());
    }

    #[tokio::test]
    async fn what_was_struck_out_is_not_left() {
        let home = tempfile::tempdir().unwrap();
        let journal = open(home.path());
        journal.write(&entry("a")).await;
        journal.strike("a").await;
        drop(journal);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn what_cannot_be_read_does_not_hide_the_rest() {
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
        // A directory that cannot be is no journal, and nothing worse.
        let nowhere = open(Path::new("/proc/nowhere"));
        assert!(!nowhere.write(&entry("a")).await && nowhere.leftovers().await.is_empty());
    }
}
