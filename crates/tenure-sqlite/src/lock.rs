//! One owning process per file: a lock on the file itself, and one beside it that names the owner.
//!
//! Both are held with `flock`, which the kernel releases when the process dies, however it dies. `<file>.lock` holds one
//! line of JSON: the process id, the program and, once known, the address at which a daemon serves the store, so that
//! others can talk to the owner instead. The lock file stays when the store is closed; a stale one means nothing.
//!
//! The lock beside the file can be deleted, and a hard link gives the file a second name with a lock of its own. So the
//! database is locked as well. SQLite's own locks are POSIX record locks, which `flock` does not touch on a local file
//! system, but the kernel drops all of them when the process closes *any* descriptor of the file. Therefore the
//! database is opened for its lock before SQLite opens it, and that descriptor is closed after SQLite's last connection
//! ([`LockFile::pin`]).

use std::collections::BTreeSet;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::holder;
use crate::watch::beside;

/// The process that owns a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its process id (in its own namespace, when it runs in a container); 0 when it is not known.
    pub pid: u32,
    /// The name of its program.
    #[serde(default)]
    pub command: Option<String>,
    /// Where it serves the store, as told by [`crate::SqliteStore::set_address`]; `None` when it does not.
    #[serde(default)]
    pub listen: Option<String>,
}

/// The owner of the file at `path`. `None` when it is not locked: no lock file, or a stale one.
///
/// Reads the lock file alone, never the database. O(1).
#[must_use]
pub fn owner(path: impl AsRef<Path>) -> Option<Owner> {
    let mut file = File::open(lock_path(path.as_ref())).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        // It is free. Closing the file releases the shared lock.
        Ok(()) => None,
        Err(_) => Some(read(&mut file)),
    }
}

/// The locks of a file, held until it is dropped.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: File,
    /// The database. Its connections keep it as well, so that it is closed after all of them.
    pin: Arc<File>,
    owner: Owner,
}

/// Why a lock could not be had.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Another process, or another store in this one, holds it.
    Owned(Owner),
    /// The lock file cannot be opened or locked.
    Failed(io::Error),
    /// The database cannot be opened for writing.
    Unwritable(io::Error),
}

/// Identifies a file, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId {
    device: u64,
    pub(crate) inode: u64,
}

impl From<&Metadata> for FileId {
    fn from(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
        }
    }
}

/// The databases that this process holds. One of them must not even be opened a second time: closing that descriptor
/// would drop SQLite's locks.
static HELD: Mutex<BTreeSet<FileId>> = Mutex::new(BTreeSet::new());

fn held() -> MutexGuard<'static, BTreeSet<FileId>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the lock of a file lives: beside what the path really leads to, so that two names of one file share a lock.
pub(crate) fn lock_path(path: &Path) -> PathBuf {
    beside(&resolved(path), ".lock")
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

/// How often to try again when only a process that calls [`owner`] is in the way, or when the file at the path was
/// replaced between opening and locking it.
const TRIES: u32 = 10_000;

/// Opens a file for reading and writing; one that is made is for this user alone.
pub(crate) fn open_private(path: &Path) -> io::Result<File> {
    let mut open = OpenOptions::new();
    open.read(true).write(true).create(true).truncate(false).mode(0o600);
    open.open(path)
}

/// Locks the database beside SQLite's own record locks. Only on Linux are the two kinds independent; elsewhere this lock
/// would exclude SQLite's of the same process, so the lock file alone protects the database there.
fn lock_whole(database: &File) -> rustix::io::Result<()> {
    if cfg!(target_os = "linux") {
        flock(database, FlockOperation::NonBlockingLockExclusive)
    } else {
        Ok(())
    }
}

/// Whether an open file is the one at the path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = FileId::from(&file.metadata()?);
    Ok(path.metadata().is_ok_and(|meta| FileId::from(&meta) == open))
}

impl LockFile {
    /// Takes both locks, or answers the owner.
    pub(crate) fn take(path: &Path) -> Result<Self, Refused> {
        let file = Self::lock_beside(&lock_path(path))?;
        let pin = Self::lock_database(path)?;
        Self::taken(file, pin)
    }

    fn lock_beside(lock: &Path) -> Result<File, Refused> {
        let mut file = open_private(lock).map_err(Refused::Failed)?;
        for _ in 0..TRIES {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_at(&file, lock).map_err(Refused::Failed)? => return Ok(file),
                Ok(()) => {
                    file = open_private(lock).map_err(Refused::Failed)?;
                    continue;
                }
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => return Err(Refused::Failed(error.into())),
            }
            // `owner` holds the lock shared, for a moment; an owner holds it alone.
            if flock(&file, FlockOperation::NonBlockingLockShared).is_err() {
                return Err(Refused::Owned(read(&mut file)));
            }
            std::thread::yield_now();
        }
        Err(Refused::Owned(read(&mut file)))
    }

    /// Nothing but an owner ever locks the database.
    fn lock_database(path: &Path) -> Result<File, Refused> {
        for _ in 0..TRIES {
            let mut held = held();
            let known = path.metadata().map(|meta| FileId::from(&meta)).ok();
            if let Some(id) = known.filter(|id| held.contains(id)) {
                let owner = holder::owner(std::process::id(), id);
                return Err(Refused::Owned(owner.unwrap_or_else(this_process)));
            }
            let file = open_private(path).map_err(Refused::Unwritable)?;
            match lock_whole(&file) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(Refused::Owned(holder::of(&file))),
                Err(error) => return Err(Refused::Failed(error.into())),
            }
            if is_at(&file, path).map_err(Refused::Unwritable)? {
                held.insert(FileId::from(&file.metadata().map_err(Refused::Unwritable)?));
                return Ok(file);
            }
        }
        Err(Refused::Owned(Owner::default()))
    }

    fn taken(file: File, pin: File) -> Result<Self, Refused> {
        let (pin, owner) = (Arc::new(pin), this_process());
        let mut lock = Self { file, pin, owner };
        lock.tell(None).map_err(Refused::Failed)?;
        Ok(lock)
    }

    /// The database as it was locked.
    pub(crate) fn pin(&self) -> &Arc<File> {
        &self.pin
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
        if let Ok(meta) = self.pin.metadata() {
            held().remove(&FileId::from(&meta));
        }
        let _ = flock(&self.pin, FlockOperation::Unlock);
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// This process as an owner, before it serves anything.
fn this_process() -> Owner {
    let program = std::env::current_exe().ok();
    let command = program.and_then(|program| Some(program.file_name()?.to_string_lossy().into_owned()));
    Owner {
        pid: std::process::id(),
        command,
        listen: None,
    }
}

/// The owner that a lock file names; the unknown one when it names none.
pub(crate) fn read(file: &mut File) -> Owner {
    let mut text = String::new();
    let whole = io::Seek::rewind(file).and_then(|()| file.take(64 * 1024).read_to_string(&mut text));
    match whole {
        Ok(_) => serde_json::from_str(text.lines().next().unwrap_or_default()).unwrap_or_default(),
        Err(_) => Owner::default(),
    }
}
