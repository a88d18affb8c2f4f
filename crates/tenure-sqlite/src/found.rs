//! What is found at the path of a store before SQLite opens it, and what that says about the contents.
//!
//! SQLite replays any log that lies beside a file. So the log is compared with the mark first: one that is not the file's
//! own is refused, or set aside where the file is empty, and never replayed.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tenure_core::recall::Doubt;
use tenure_core::{Error, ErrorKind, Result, StoreTime};

use crate::error::Cause;
use crate::mark::{Identity, LogMark, Mark, Marker};
use crate::sql::{read_instant, read_number, read_span, statements};
use crate::wal::Log;
use crate::watch::beside;

statements! { "recall.sql":
    READ = "read",
    BASE = "base",
}

/// What is found before the file is opened.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) inode: u64,
    mark: Option<Mark>,
}

/// What the file says of itself.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) identity: Option<Identity>,
    pub(crate) commits: u64,
    /// The wait that was written down.
    pub(crate) wait: Option<(Doubt, StoreTime)>,
    /// The longest ttl of its groups.
    pub(crate) longest: Duration,
    has_groups: bool,
}

impl Found {
    /// Looks at a locked file, its mark and its log.
    ///
    /// # Errors
    /// `Misconfigured` when the log is not the file's own, or cannot be looked at.
    pub(crate) fn look(path: &Path, file: &File) -> Result<Self> {
        let unseen = |error: std::io::Error| {
            let message = format!("{} or its log cannot be looked at ({error})", path.display());
            Error::new(ErrorKind::Misconfigured, message).because(error)
        };
        let (meta, log_path) = (file.metadata().map_err(unseen)?, beside(path, "-wal"));
        let found = Self {
            inode: meta.ino(),
            mark: Mark::read(path),
        };
        let log = Log::at(&log_path).map_err(unseen)?;
        if log == Log::Empty {
            return Ok(found);
        }
        if meta.len() == 0 {
            // SQLite would delete it.
            let aside = beside(path, "-wal.set-aside");
            std::fs::rename(&log_path, &aside).map_err(unseen)?;
            tracing::error!(
                "{} is empty, but there is a log beside it; the log was kept as {}",
                path.display(),
                aside.display()
            );
            return Ok(found);
        }
        match &found.mark {
            Some(mark) if !is_own(path, found.inode, mark, log) => Err(foreign(path)),
            _ => Ok(found),
        }
    }

    /// Why the file may have forgotten something, if it may.
    pub(crate) fn judge(&self, contents: &Contents) -> Option<Doubt> {
        if tenure_core::planted::planted("older-file-whole") {
            return None;
        }
        let Some(mark) = &self.mark else {
            let is_new = contents.identity.is_none() && !contents.has_groups;
            return Some(if is_new { Doubt::New } else { Doubt::Unmarked });
        };
        match contents.identity {
            None if !contents.has_groups => Some(Doubt::New),
            Some(identity) if identity == mark.identity && self.inode == mark.inode => {
                let is_behind = contents.commits < mark.commits;
                let doubt = if mark.log.is_some() {
                    Doubt::CutShort
                } else {
                    Doubt::Older
                };
                is_behind.then_some(doubt)
            }
            _ => Some(Doubt::Replaced),
        }
    }

    /// The number of the last commit that the mark knows of.
    pub(crate) fn commits(&self) -> u64 {
        self.mark.map_or(0, |mark| mark.commits)
    }

    /// The longest ttl that the mark knows of.
    pub(crate) fn longest(&self) -> Duration {
        self.mark.map_or(Duration::ZERO, |mark| mark.longest)
    }
}

impl Contents {
    pub(crate) fn read(sql: &Connection) -> Result<Self, Cause> {
        let row = |row: &rusqlite::Row<'_>| {
            let (identity, why): (Option<String>, Option<String>) = (row.get(0)?, row.get(3)?);
            let doubt = why.as_deref().and_then(Doubt::parse);
            Ok(Self {
                identity: identity.and_then(|identity| identity.parse().ok()),
                commits: read_number(row, 1)?,
                wait: doubt.zip(read_instant(row, 2).ok()),
                longest: read_span(row, 4)?,
                has_groups: row.get(5)?,
            })
        };
        Ok(sql.query_row(READ, [], row)?)
    }
}

/// Whether a log that holds something belongs to this file.
fn is_own(path: &Path, inode: u64, mark: &Mark, log: Log) -> bool {
    // After a clean close the mark does not know the salts of the next log yet.
    let is_known = |known: LogMark| match log {
        Log::Salted(salts) => salts.continue_from(known.salts),
        // SQLite ignores it, and the commits that were in it are missed.
        Log::Garbled | Log::Empty => true,
    };
    inode == mark.inode
        && mark
            .log
            .is_none_or(|known| is_known(known) && is_based(path, mark.identity, known.base))
}

/// Whether the file without its log is one that the log can be replayed on: not an older copy that was written over it.
fn is_based(path: &Path, identity: Identity, base: u64) -> bool {
    if base == 0 {
        return true;
    }
    match base_of(path) {
        Ok((found, commits)) => found == Some(identity) && commits >= base,
        // A file of the version before has no such columns, and a power cut can leave any page half written: the log
        // mends that.
        Err(_) => true,
    }
}

/// Reads the file as if there were no log. Takes no lock.
fn base_of(path: &Path) -> rusqlite::Result<(Option<Identity>, u64)> {
    use std::os::unix::ffi::OsStrExt;
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let sql = Connection::open_with_flags(uri + "?immutable=1", flags)?;
    sql.query_row(BASE, [], |row| {
        let identity: Option<String> = row.get(0)?;
        Ok((
            identity.and_then(|identity| identity.parse().ok()),
            read_number(row, 1)?,
        ))
    })
}

fn foreign(path: &Path) -> Error {
    let (shown, log) = (path.display(), beside(path, "-wal"));
    Error::new(
        ErrorKind::Misconfigured,
        format!(
            "the log {} is not that of {shown}: one of them is a copy from another time, and SQLite would mix them; nothing \
             was changed; put the file back that belongs to the log, or put a backup in place with `tenure restore`",
            log.display()
        ),
    )
}

/// Makes the mark beside a file that of no file, so that whatever is put in place may have forgotten. What it says about
/// ttls stays.
pub(crate) fn disown(path: &Path) -> std::io::Result<()> {
    let mark = Mark {
        identity: Identity(0),
        inode: 0,
        commits: 0,
        log: None,
        longest: Mark::read(path).map_or(Duration::ZERO, |mark| mark.longest),
    };
    Marker::begin(path, mark).map(drop)
}
