//! One owning process per file: a lock beside it, that tells who holds it.
//!
//! `<file>.lock` is held with `flock`, which the kernel lets go when the process dies, however it dies. It holds one
//! line of JSON: the process id, the program and, once known, the address at which a daemon serves the store, so that
//! others can talk to the owner instead. The lock file stays when the store is closed; a stale one means nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The process that owns a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its process id (in its own namespace, when it runs in a container).
    pub pid: u32,
    /// The name of its program.
    #[serde(default)]
    pub command: Option<String>,
    /// Where it serves the store, as told by [`crate::SqliteStore::set_address`]; `None` when it does not.
    #[serde(default)]
    pub listen: Option<String>,
}

/// Who owns the file at `path` now. `None` when nobody does: no lock file, or one left behind.
///
/// Reads the lock file alone, never the database. O(1).
#[must_use]
pub fn owner(path: impl AsRef<Path>) -> Option<Owner> {
    let mut file = File::open(lock_path(path.as_ref())).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        // Nobody holds it. Closing the file lets go of the shared lock.
        Ok(()) => None,
        Err(_) => Some(read(&mut file)),
    }
}

/// The lock beside a file, held until it is dropped.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: File,
    owner: Owner,
}

/// Why the lock could not be had.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Another process, or another store in this one, holds it.
    Owned(Owner),
    /// The lock file cannot be opened or locked.
    Failed(io::Error),
}

/// Where the lock of a file lives: beside what the path really leads to, so that two names of one file share a lock.
pub(crate) fn lock_path(path: &Path) -> PathBuf {
    let mut lock = resolved(path).into_os_string();
    lock.push(".lock");
    lock.into()
}

/// The path without symbolic links; also for a file that does not exist yet.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match (parent.unwrap_or(Path::new(".")).canonicalize(), path.file_name()) {
        (Ok(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// How often to try again when it is only somebody asking [`owner`] that is in the way.
const TRIES: u32 = 10_000;

impl LockFile {
    /// Takes the lock, or tells who has it.
    pub(crate) fn take(path: &Path) -> Result<Self, Refused> {
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(lock_path(path));
        let mut file = open.map_err(Refused::Failed)?;
        for _ in 0..TRIES {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Self::taken(file),
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => return Err(Refused::Failed(error.into())),
            }
            // Asking holds the lock shared, for a moment; owning holds it alone.
            if flock(&file, FlockOperation::NonBlockingLockShared).is_err() {
                return Err(Refused::Owned(read(&mut file)));
            }
            std::thread::yield_now();
        }
        Err(Refused::Owned(read(&mut file)))
    }

    fn taken(file: File) -> Result<Self, Refused> {
        let program = std::env::current_exe().ok();
        let command = program.and_then(|program| Some(program.file_name()?.to_string_lossy().into_owned()));
        let owner = Owner {
            pid: std::process::id(),
            command,
            listen: None,
        };
        let mut lock = Self { file, owner };
        lock.tell(None).map_err(Refused::Failed)?;
        Ok(lock)
    }

    /// Writes down where the owner serves the store.
    pub(crate) fn tell(&mut self, listen: Option<&str>) -> io::Result<()> {
        self.owner.listen = listen.map(str::to_owned);
        let mut line = serde_json::to_string(&self.owner)?;
        line.push('\n');
        // Readers take the first line, so that what is left of a longer one does not disturb them.
        self.file.write_all_at(line.as_bytes(), 0)?;
        self.file.set_len(line.len() as u64)
    }

    /// The process that holds it: this one.
    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // The descriptor may have been inherited by a child that was forked; letting go frees the lock for all copies.
        let _ = self.file.set_len(0);
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

fn read(file: &mut File) -> Owner {
    let mut text = String::new();
    let unknown = Owner {
        pid: 0,
        command: None,
        listen: None,
    };
    if io::Seek::rewind(file)
        .and_then(|()| file.take(64 * 1024).read_to_string(&mut text))
        .is_err()
    {
        return unknown;
    }
    let line = text.lines().next().unwrap_or_default();
    serde_json::from_str(line).unwrap_or(unknown)
}
