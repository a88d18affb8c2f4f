//! Whether the open files are still the ones at their paths.
//!
//! A process keeps writing to a file that was deleted, moved away or replaced, and what it acknowledges then is lost
//! with it. So the paths are compared with the open files once a second, before each transaction and after each commit;
//! while they differ every call is refused. The same goes for a log that was cut or overwritten (`index.rs`), for good: what
//! it had is lost.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tenure_core::error::Outcome;
use tenure_core::{Error, Result};
use tokio::sync::Notify;

use crate::index::OpenLog;
use crate::lock::FileId;
use crate::open_file::OpenFile;

/// How often an idle file is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// The files that must stay in their places.
#[derive(Debug)]
pub(crate) struct Watch {
    files: Vec<Watched>,
    log: Mutex<WatchedLog>,
    damage: Notify,
    /// What was seen last; set in `is_astray` as well, which costs no lock.
    astray: Mutex<Option<String>>,
    is_astray: AtomicBool,
}

#[derive(Debug)]
struct Watched {
    path: PathBuf,
    id: OnceLock<FileId>,
    /// How long it was, for a file that only grows.
    len: Option<AtomicU64>,
    /// It was cut short, so that its contents are not known any more, whatever its length is now.
    was_cut: AtomicBool,
}

/// The contents of the log.
#[derive(Debug)]
struct WatchedLog {
    database: PathBuf,
    /// Open from the first look that finds a log, until the file is released.
    open: Option<OpenLog>,
    is_released: bool,
    damaged: Option<String>,
}

impl Watch {
    /// Watches the database, its log and the log's index, as they are now, and others beside it.
    pub(crate) fn new(path: &Path, others: Vec<PathBuf>) -> Self {
        let database = Watched::new(path.to_owned(), true);
        let log = ["-wal", "-shm"].map(|suffix| Watched::new(beside(path, suffix), false));
        let others = others.into_iter().map(|path| Watched::new(path, false));
        let log_contents = WatchedLog {
            database: path.to_owned(),
            open: None,
            is_released: false,
            damaged: None,
        };
        let watch = Self {
            files: [database].into_iter().chain(log).chain(others).collect(),
            log: Mutex::new(log_contents),
            damage: Notify::new(),
            astray: Mutex::new(None),
            is_astray: AtomicBool::new(false),
        };
        watch.log().look();
        watch
    }

    /// Compares all of them. Answers what is wrong, and remembers it for [`Self::check`]. Files that are being closed may
    /// change: SQLite deletes the log of one.
    pub(crate) fn look(&self, closed: impl FnOnce() -> bool) -> Option<String> {
        // One look at a time: the result of an earlier one must not replace that of a later one.
        let mut astray = self.guard();
        let wrong = self.files.iter().find_map(Watched::look);
        let wrong = wrong.or_else(|| self.damaged_log());
        if wrong.is_some() && closed() {
            return None;
        }
        if wrong.is_some() != self.is_astray.load(Ordering::Acquire) {
            match &wrong {
                Some(wrong) => tracing::error!("{wrong}"),
                None => tracing::info!("the SQLite file is in its place again; calls are served"),
            }
            astray.clone_from(&wrong);
            self.is_astray.store(wrong.is_some(), Ordering::Release);
        }
        wrong
    }

    /// Refuses when the last look found something wrong.
    pub(crate) fn check(&self) -> Result<()> {
        match self.wrong() {
            Some(wrong) => Err(Error::unavailable(wrong, Outcome::Unchanged)),
            None => Ok(()),
        }
    }

    /// What the last look found wrong.
    pub(crate) fn wrong(&self) -> Option<String> {
        if !self.is_astray.load(Ordering::Acquire) {
            return None;
        }
        self.guard().clone()
    }

    /// What is wrong with a log that lost commits: nothing may be read through it, or copied into the file.
    pub(crate) fn damaged_log(&self) -> Option<String> {
        let damaged = self.log().look();
        if damaged.is_some() {
            self.damage.notify_waiters();
        }
        damaged
    }

    /// Waits until a look has found the log damaged.
    pub(crate) async fn until_damaged(&self) -> String {
        loop {
            let noticed = self.damage.notified();
            tokio::pin!(noticed);
            noticed.as_mut().enable();
            if let Some(damaged) = self.damaged_log() {
                return damaged;
            }
            noticed.await;
        }
    }

    /// Closes what it has open. The connections are closed by now.
    pub(crate) fn release(&self) {
        let mut log = self.log();
        log.is_released = true;
        log.open = None;
    }

    fn log(&self) -> MutexGuard<'_, WatchedLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn guard(&self) -> MutexGuard<'_, Option<String>> {
        self.astray.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchedLog {
    fn look(&mut self) -> Option<String> {
        if self.damaged.is_none() && !self.is_released {
            if self.open.is_none() {
                self.open = OpenLog::beside(&self.database).ok();
            }
            self.damaged = self.open.as_ref().and_then(OpenLog::look).map(|seen| {
                format!(
                    "{} {seen} while it was open; the commits in it may be lost; nothing is written any more; restart this \
                     process: it grants no lease for one max ttl if some are",
                    beside(&self.database, "-wal").display()
                )
            });
        }
        self.damaged.clone()
    }
}

impl Watched {
    fn new(path: PathBuf, grows: bool) -> Self {
        let watched = Self {
            path,
            id: OnceLock::new(),
            len: grows.then(|| AtomicU64::new(0)),
            was_cut: AtomicBool::new(false),
        };
        watched.look();
        watched
    }

    fn look(&self) -> Option<String> {
        let seen = match self.path.metadata() {
            Ok(meta) => self.compare(&meta)?,
            // SQLite makes its log with the first transaction.
            Err(_) if self.id.get().is_none() => return None,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => "was deleted or moved away".to_owned(),
            Err(error) => format!("cannot be looked at ({error})"),
        };
        Some(format!(
            "{} {seen} while it was open; nothing is written until the same file is back in its place; or restart this \
             process: it serves what is there then, and grants no lease for one max ttl if that may be older",
            self.path.display()
        ))
    }

    fn compare(&self, meta: &Metadata) -> Option<String> {
        let id = FileId::from(meta);
        if *self.id.get_or_init(|| id) != id {
            return Some("was replaced by another file".to_owned());
        }
        if let Some(len) = &self.len
            && len.fetch_max(meta.len(), Ordering::AcqRel) > meta.len()
        {
            self.was_cut.store(true, Ordering::Release);
        }
        self.was_cut.load(Ordering::Acquire).then(|| "was cut short".to_owned())
    }
}

/// Looks at a file once a second, until it is closed.
pub(crate) fn start(file: &Arc<OpenFile>) -> std::io::Result<()> {
    let file: Weak<OpenFile> = Arc::downgrade(file);
    let watch = move || {
        while let Some(file) = file.upgrade().filter(|file| !file.is_closed()) {
            file.watch.look(|| file.is_closed());
            drop(file);
            std::thread::park_timeout(EVERY);
        }
    };
    std::thread::Builder::new()
        .name("tenure-watch".to_owned())
        .spawn(watch)
        .map(drop)
}

/// A file beside another, named by a suffix.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
