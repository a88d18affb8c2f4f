//! The precise causes inside this crate, and the errors they become.

use rusqlite::{ErrorCode, ffi};
use tenure_core::engine::Fault;
use tenure_core::error::Outcome;
use tenure_core::{Error, ErrorKind};

/// Why a step, a commit or a read could not be done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    /// SQLite said so.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    /// The file holds something that this version never writes.
    #[error("the file holds something that Tenure did not write: {0}")]
    Strange(String),
    /// A bug in a step, caught.
    #[error("the step panicked: {0}")]
    Panicked(String),
    /// The file is not the one at its path any more: what was seen, and the outcome of the transaction.
    #[error("{0}")]
    Astray(String, Outcome),
    /// The connection was given up.
    #[error("the SQLite file was given up")]
    Closed,
    /// The file had to be opened again, and could not be.
    #[error("the SQLite file cannot be opened again: {0}")]
    Lost(String),
}

impl Cause {
    /// The error for the caller of a step that was rolled back, or whose transaction was not committed.
    pub(crate) fn to_error(&self) -> Error {
        let error = match self {
            Self::Astray(seen, outcome) => return Error::unavailable(seen.clone(), *outcome),
            Self::Sql(sql) => match sql.sqlite_error_code() {
                Some(code) => Error::unavailable(advice(code), outcome(code)),
                None => Error::new(
                    ErrorKind::Internal,
                    "the SQLite file holds something that Tenure did not write",
                ),
            },
            Self::Strange(_) => Error::new(
                ErrorKind::Internal,
                "the SQLite file holds something that Tenure did not write",
            ),
            Self::Panicked(_) => Error::new(
                ErrorKind::Internal,
                "a step of the store panicked and was undone; please report it",
            ),
            Self::Closed => {
                Error::unavailable("the SQLite file was given up; restart this process", Outcome::Unchanged)
            }
            Self::Lost(_) => Error::unavailable(
                "the SQLite file cannot be opened again; look at the disk",
                Outcome::Unchanged,
            ),
        };
        error.because(self.to_string())
    }

    /// What it means for a commit of the store.
    ///
    /// After a failed write or sync the page cache may show what is not on the disk, so nothing that is read from there can be
    /// trusted. Everything else was rolled back before it could become durable.
    pub(crate) fn to_fault(&self) -> Fault {
        let error = self.to_error();
        match self {
            Self::Astray(_, Outcome::Unknown) => Fault::Doubtful(error),
            Self::Closed => Fault::Broken(error),
            Self::Sql(sql) if is_untrustworthy(sql) => Fault::Broken(error),
            _ => Fault::RolledBack(error),
        }
    }

    /// Whether the file and the connection are to be looked at afresh: how far a write came is unknown.
    pub(crate) fn is_doubtful(&self) -> bool {
        let code = match self {
            Self::Sql(sql) => sql.sqlite_error_code(),
            _ => None,
        };
        matches!(
            code,
            Some(
                ErrorCode::SystemIoFailure
                    | ErrorCode::DatabaseCorrupt
                    | ErrorCode::NotADatabase
                    | ErrorCode::CannotOpen
            )
        )
    }
}

/// Whether the disk or the file is not what it was taken for. A file of shared memory that cannot be made or extended, as on
/// a full disk, is none of these: it is made again.
fn is_untrustworthy(error: &rusqlite::Error) -> bool {
    let Some(code) = error.sqlite_error() else { return false };
    match code.code {
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => true,
        ErrorCode::SystemIoFailure => !matches!(
            code.extended_code,
            ffi::SQLITE_IOERR_SHMOPEN
                | ffi::SQLITE_IOERR_SHMSIZE
                | ffi::SQLITE_IOERR_SHMMAP
                | ffi::SQLITE_IOERR_SHMLOCK
                | ffi::SQLITE_IOERR_LOCK
                | ffi::SQLITE_IOERR_NOMEM
        ),
        _ => false,
    }
}

/// SQLite undoes a failed write of the log, but after a failed sync the kernel may still bring it to the disk, and
/// a crash before the next commit would then find it there.
fn outcome(code: ErrorCode) -> Outcome {
    match code {
        ErrorCode::SystemIoFailure => Outcome::Unknown,
        _ => Outcome::Unchanged,
    }
}

fn advice(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::DiskFull => "the disk of the SQLite file is full; free some room",
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            "another program held the write lock of the SQLite file for too long; only its owner may write to it"
        }
        ErrorCode::SystemIoFailure => {
            "reading or writing the SQLite file failed; look at the disk and the kernel's log"
        }
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            "the SQLite file is damaged; restore it, or move it away and start anew"
        }
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => {
            "the SQLite file cannot be written any more; look at its permissions and mount"
        }
        ErrorCode::OutOfMemory => "out of memory",
        _ => "SQLite could not do it",
    }
}

/// What calls answer once the file is closed.
pub(crate) fn closed() -> Error {
    Error::unavailable("the SQLite file was closed", Outcome::Unchanged)
}
