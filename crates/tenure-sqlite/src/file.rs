//! Opening the file: checks before anything is written, the settings of each connection, and the schema.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use tenure_core::{Error, ErrorKind, Result};

use crate::error::Cause;
use crate::lock::{LockFile, Refused, lock_path, resolved};

/// What a file is for.
#[derive(Debug)]
pub(crate) struct Kind {
    /// In a word.
    pub(crate) noun: &'static str,
    /// Marks a file as one of these.
    application_id: i32,
    /// The schema, one text per version.
    migrations: &'static [&'static str],
    /// The version of the first migration. Lower ones were never released.
    first: i32,
    /// A good name for it.
    name: &'static str,
    /// What happens when the process starts with a new file instead.
    when_new: &'static str,
    /// What to use instead when another process has it.
    other: &'static str,
}

/// Tenures, and what is held under them. "TENR".
pub(crate) static STORE: Kind = Kind {
    noun: "store",
    application_id: 0x5445_4e52,
    migrations: &[
        include_str!("sql/migrations/0001_tenures.sql"),
        include_str!("sql/migrations/0002_leases.sql"),
        include_str!("sql/migrations/0003_sessions.sql"),
        include_str!("sql/migrations/0004_rosters.sql"),
        include_str!("sql/migrations/0005_recall.sql"),
        include_str!("sql/migrations/0006_settled.sql"),
        include_str!("sql/migrations/0007_shared_leases.sql"),
        include_str!("sql/migrations/0008_generations.sql"),
    ],
    first: 1,
    name: "tenure.db",
    when_new: "members join again by themselves",
    other: "stop it first, or run `tenure serve` on the file",
};

/// Rosters. "TENL".
pub(crate) static LEDGER: Kind = Kind {
    noun: "ledger",
    application_id: 0x5445_4e4c,
    migrations: &[concat!(
        include_str!("sql/ledger/schema/tables.sql"),
        include_str!("sql/ledger/schema/triggers.sql"),
    )],
    first: 5,
    name: "ledger.db",
    when_new: "providers and engagements are then to be written down again",
    other: "stop it first, or name another file",
};

impl Kind {
    /// The version of the last migration.
    fn newest(&self) -> i32 {
        let later = self.migrations.len().saturating_sub(1);
        self.first + i32::try_from(later).unwrap_or(i32::MAX - self.first)
    }
}

/// How long a program that holds the write lock may be in the way.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How many statements each connection keeps prepared; there are about 130.
const STATEMENTS: usize = 192;

/// Takes the locks of a file. Answers the path without symbolic links.
pub(crate) fn lock(path: &Path, kind: &'static Kind) -> Result<(PathBuf, LockFile)> {
    let path = resolved(path);
    check_path(&path, kind)?;
    check_writable(&path)?;
    let lock = LockFile::take(&path).map_err(|refused| not_ours(&path, kind, refused))?;
    Ok((path, lock))
}

/// Opens the one connection that writes, making or migrating the file if need be. The caller holds the lock.
pub(crate) fn open_writer(path: &Path, kind: &Kind) -> Result<Connection> {
    let connect = || -> Result<(Connection, i32), Cause> {
        let sql = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        let version = sql.pragma_query_value(None, "user_version", |row| row.get(0))?;
        Ok((sql, version))
    };
    let (sql, version) = connect().map_err(|cause| unreadable(path, kind, &cause))?;
    check_contents(path, kind, &sql, version)?;
    let prepared = prepare_writer(&sql).and_then(|()| migrate(&sql, kind, version));
    prepared.map_err(|cause| unreadable(path, kind, &cause))?;
    Ok(sql)
}

/// Opens the writing connection again after it was lost. Never makes a file: one that is gone must not turn into an
/// empty store.
pub(crate) fn reopen_writer(path: &Path) -> Result<Connection, Cause> {
    let sql = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    prepare_writer(&sql)?;
    Ok(sql)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, Cause> {
    let sql = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    sql.busy_timeout(BUSY_TIMEOUT)?;
    sql.pragma_update(None, "temp_store", "memory")?;
    sql.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(sql)
}

/// The settings of the writer: a log that is synced with every commit, and checkpoints at moments of our choice.
fn prepare_writer(sql: &Connection) -> Result<(), Cause> {
    let mode: String = sql.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    if mode != "wal" {
        return Err(Cause::Strange(format!("the journal mode stays {mode:?}")));
    }
    sql.pragma_update(None, "synchronous", "full")?;
    // On macOS a plain sync leaves the data in the cache of the disk. Without effect elsewhere.
    sql.pragma_update(None, "fullfsync", true)?;
    sql.pragma_update(None, "wal_autocheckpoint", 0)?;
    sql.pragma_update(None, "journal_size_limit", 64 << 20)?;
    sql.pragma_update(None, "cache_size", -16_384)?;
    Ok(())
}

/// Closes a connection and leaves the log as it is: SQLite would copy a log that lost commits into the file, holes included.
pub(crate) fn close_as_it_is(sql: Connection) {
    if let Err(error) = sql.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
        tracing::warn!(%error, "the log of the SQLite file may be copied into it");
    }
    drop(sql);
}

/// Opens a connection that can only read.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, Cause> {
    let sql = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    sql.pragma_update(None, "cache_size", -4_096)?;
    Ok(sql)
}

/// Refuses what cannot be a file, without opening it.
fn check_path(path: &Path, kind: &Kind) -> Result<()> {
    let shown = path.display();
    let wrong = |message: String| Err(Error::new(ErrorKind::Misconfigured, message));
    if path.is_dir() {
        return wrong(format!(
            "{shown} is a directory; name a file in it, like {shown}/{}",
            kind.name
        ));
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => wrong(format!(
            "{shown} cannot be made: there is no directory {}",
            parent.display()
        )),
        _ => Ok(()),
    }
}

/// Refuses a file whose permissions forbid writing, even for root.
fn check_writable(path: &Path) -> Result<()> {
    let shown = path.display();
    let wrong = |message: String| Error::new(ErrorKind::Misconfigured, message);
    if path.metadata().is_ok_and(|meta| meta.permissions().readonly()) {
        return Err(wrong(format!(
            "{shown} is read-only; make it writable, or name another file"
        )));
    }
    Ok(())
}

/// Refuses a database that is not ours, or newer than this program.
fn check_contents(path: &Path, kind: &Kind, sql: &Connection, version: i32) -> Result<()> {
    let shown = path.display();
    let wrong = |message: String| Error::new(ErrorKind::Misconfigured, message);
    let look = || -> rusqlite::Result<(i32, i64)> {
        let id = sql.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let tables = sql.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((id, tables))
    };
    let (id, tables) = look().map_err(|error| unreadable(path, kind, &error.into()))?;
    if let Some(other) = [&STORE, &LEDGER].into_iter().find(|other| other.application_id == id)
        && id != kind.application_id
    {
        return Err(wrong(format!(
            "{shown} holds a {} of Tenure and no {}; nothing was changed; name another file",
            other.noun, kind.noun
        )));
    }
    if tables > 0 && id != kind.application_id {
        return Err(wrong(format!(
            "{shown} is a database of another program; nothing was changed; name another file"
        )));
    }
    let newest = kind.newest();
    if version > newest {
        return Err(wrong(format!(
            "{shown} was written by a newer Tenure (schema {version}, this one knows {newest}); nothing was changed; update this program"
        )));
    }
    if (1..kind.first).contains(&version) {
        return Err(wrong(format!(
            "{shown} was written by an unreleased build of Tenure (schema {version}, the oldest that this one reads is {}); \
             nothing was changed; move it away and start with a new file ({})",
            kind.first, kind.when_new
        )));
    }
    Ok(())
}

/// The error for a file that cannot be opened or loaded.
pub(crate) fn unreadable(path: &Path, kind: &Kind, cause: &Cause) -> Error {
    let shown = path.display();
    let code = match cause {
        Cause::Sql(sql) => sql.sqlite_error_code(),
        _ => None,
    };
    match code {
        Some(ErrorCode::NotADatabase) => Error::new(
            ErrorKind::Misconfigured,
            format!("{shown} is not a SQLite database; nothing was changed; name another file"),
        ),
        Some(ErrorCode::DatabaseCorrupt) => damaged(path, kind),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => Error::new(
            ErrorKind::Misconfigured,
            format!("{shown} cannot be opened for writing; look at the permissions of the file and its directory"),
        ),
        _ => cause.to_error(),
    }
    .because(cause.to_string())
}

fn damaged(path: &Path, kind: &Kind) -> Error {
    Error::new(
        ErrorKind::Misconfigured,
        format!(
            "{} is damaged; nothing was changed; restore a copy, or move it away and start anew ({})",
            path.display(),
            kind.when_new
        ),
    )
}

fn migrate(sql: &Connection, kind: &Kind, version: i32) -> Result<(), Cause> {
    for (number, migration) in (kind.first..).zip(kind.migrations) {
        if number > version {
            let id = kind.application_id;
            let step = format!(
                "BEGIN IMMEDIATE;\n{migration}\nPRAGMA application_id = {id};\nPRAGMA user_version = {number};\nCOMMIT;"
            );
            if let Err(error) = sql.execute_batch(&step) {
                let _ = sql.execute_batch("ROLLBACK");
                return Err(error.into());
            }
        }
    }
    Ok(())
}

/// The error for a file whose lock is not to be had.
fn not_ours(path: &Path, kind: &Kind, refused: Refused) -> Error {
    let shown = path.display();
    match refused {
        Refused::Owned(owner) => {
            let program = owner.command.as_deref();
            let program = program.map_or_else(String::new, |command| format!(" ({command})"));
            let who = match owner.pid {
                0 => "another process".to_owned(),
                pid => format!("process {pid}{program}"),
            };
            let noun = kind.noun;
            let advice = match &owner.listen {
                Some(listen) => format!("it serves the {noun} at {listen}; use that address instead of the file"),
                None => format!("it does not serve it to others; {}", kind.other),
            };
            let message = format!("{shown} is in use by {who}: {advice}");
            Error::new(ErrorKind::Misconfigured, message)
        }
        Refused::Unwritable(error) => {
            let message = format!("{shown} cannot be opened for writing ({error}); look at its permissions");
            Error::new(ErrorKind::Misconfigured, message).because(error)
        }
        Refused::Failed(error) => {
            let message = format!(
                "{} cannot be made or locked ({error}); look at the directory",
                lock_path(path).display()
            );
            Error::new(ErrorKind::Misconfigured, message).because(error)
        }
    }
}
