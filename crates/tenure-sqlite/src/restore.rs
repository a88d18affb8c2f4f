//! Putting a backup in the place of a store.
//!
//! A store is more than its file: a log left beside another file would be replayed on it, and leases that were granted
//! since the backup are not in it. So the file that was there is set aside together with its log, and the mark is made that
//! of no file: at its next start the store waits before it grants a lease.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tenure_core::{Error, ErrorKind, Result};

use crate::error::Cause;
use crate::file::{self, STORE};
use crate::found::disown;
use crate::watch::beside;

/// What was put in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The file, without symbolic links.
    pub path: PathBuf,
    /// Where the file that was there is now; `None` when there was none.
    pub set_aside: Option<PathBuf>,
}

/// Puts a copy of the store file `backup` at `path`. No process may have the file at `path` open. The backup stays as it
/// is; a log beside it (`-wal`) is taken along. Blocks; O(size of the backup).
///
/// # Errors
/// `Misconfigured`, with nothing changed at `path`: another process owns it (named), or the backup is missing, empty,
/// damaged, not a store, or a newer Tenure's. `Unavailable` when a file cannot be written or moved.
pub fn restore(backup: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<Restored> {
    let (backup, path) = (backup.as_ref(), path.as_ref());
    let len = backup
        .metadata()
        .map_err(|error| refused(backup, &error.to_string()))?
        .len();
    if len == 0 {
        return Err(refused(backup, "it is empty"));
    }
    if backup
        .canonicalize()
        .is_ok_and(|backup| Some(backup) == path.canonicalize().ok())
    {
        return Err(refused(backup, "it is the file to be replaced"));
    }
    let (path, lock) = file::lock(path, &STORE)?;
    let new = beside(&path, ".restoring");
    let restored = prepare(backup, &new).and_then(|()| put_in_place(&new, &path));
    if restored.is_err() {
        remove_all(&new);
    }
    drop(lock);
    restored
}

/// Makes one complete and checked file of the backup.
fn prepare(backup: &Path, new: &Path) -> Result<()> {
    remove_all(new);
    let failed = |error: io::Error| unwritable(new, error);
    for suffix in ["", "-wal"] {
        let from = beside(backup, suffix);
        if from.exists() {
            let mut file = crate::lock::open_private(&beside(new, suffix)).map_err(failed)?;
            let mut source = fs::File::open(&from).map_err(|error| refused(&from, &error.to_string()))?;
            io::copy(&mut source, &mut file).map_err(failed)?;
        }
    }
    // Under the backup's name: the user does not know the copy.
    let sql = file::open_writer(new, &STORE).map_err(|error| {
        let message = error
            .message()
            .replace(&*new.to_string_lossy(), &backup.to_string_lossy());
        Error::new(error.kind(), message).because(error)
    })?;
    check(&sql)
        .and_then(|()| Ok(sql.close().map_err(|(_, error)| error)?))
        .map_err(|cause| refused(backup, &format!("it is damaged ({cause})")))?;
    remove_logs(new);
    fs::File::open(new).and_then(|file| file.sync_all()).map_err(failed)
}

fn check(sql: &Connection) -> Result<(), Cause> {
    let found: String = sql.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        return Err(Cause::Strange(found));
    }
    sql.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

/// Sets the file aside that is there, and moves the new one to its place. Whatever is found after a crash in the middle may
/// have forgotten: the mark says so before anything is moved.
fn put_in_place(new: &Path, path: &Path) -> Result<Restored> {
    let failed = |error: io::Error| unwritable(path, error);
    disown(path).map_err(failed)?;
    let was_empty = path.metadata().map_err(failed)?.len() == 0;
    let aside = beside(path, ".before-restore");
    if !was_empty {
        remove_all(&aside);
        fs::rename(path, &aside).map_err(failed)?;
        let log = beside(path, "-wal");
        if log.exists() {
            fs::rename(log, beside(&aside, "-wal")).map_err(failed)?;
        }
    }
    remove_logs(path);
    fs::rename(new, path).map_err(failed)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = fs::File::open(directory.unwrap_or(Path::new(".")));
    directory.and_then(|directory| directory.sync_all()).map_err(failed)?;
    Ok(Restored {
        path: path.to_owned(),
        set_aside: (!was_empty).then_some(aside),
    })
}

fn remove_all(path: &Path) {
    let _ = fs::remove_file(path);
    remove_logs(path);
}

fn remove_logs(path: &Path) {
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(beside(path, suffix));
    }
}

fn refused(backup: &Path, why: &str) -> Error {
    let message = format!("the backup {} cannot be restored: {why}", backup.display());
    Error::new(ErrorKind::Misconfigured, message)
}

fn unwritable(path: &Path, error: io::Error) -> Error {
    let message = format!(
        "{} could not be written or moved ({error}); look at the directory and run it again",
        path.display()
    );
    Error::unavailable(message, tenure_core::error::Outcome::Unknown).because(error)
}
