//! Whether the open files are still the ones at their paths.
//!
//! A process keeps writing to a file that was deleted, moved away or replaced, and what it acknowledges then is lost
//! with it. So the paths are compared with the open files once a second, before each transaction and after each commit;
//! while they differ every call is refused.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tenure_core::error::Outcome;
use tenure_core::{Error, Result};

use crate::lock::FileId;
use crate::open_file::OpenFile;

/// How often an idle file is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// The files that must stay in their places.
#[derive(Debug)]
pub(crate) struct Watch {
    files: Vec<Watched>,
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

impl Watch {
    /// Watches the database and its log, as they are now, and others beside it.
    pub(crate) fn new(path: &Path, others: Vec<PathBuf>) -> Self {
        let database = Watched::new(path.to_owned(), true);
        let log = Watched::new(beside(path, "-wal"), false);
        let others = others.into_iter().map(|path| Watched::new(path, false));
        Self {
            files: [database, log].into_iter().chain(others).collect(),
            astray: Mutex::new(None),
            is_astray: AtomicBool::new(false),
        }
    }

    /// Compares all of them. Answers what is wrong, and remembers it for [`Self::check`]. Files that are being closed may
    /// change: SQLite deletes the log of one.
    pub(crate) fn look(&self, closed: impl FnOnce() -> bool) -> Option<String> {
        let wrong = self.files.iter().find_map(Watched::look);
        if wrong.is_some() && closed() {
            return None;
        }
        if wrong.is_some() != self.is_astray.load(Ordering::Acquire) {
            let mut astray = self.guard();
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

    fn guard(&self) -> MutexGuard<'_, Option<String>> {
        self.astray.lock().unwrap_or_else(PoisonError::into_inner)
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
