//! The store itself: opening, answering, closing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;
use tenure_core::call::{Op, Reply, StoreRequest};
use tenure_core::engine::{Engine, StoreClock};
use tenure_core::error::Outcome;
use tenure_core::store::{Backend, Finding, Health, StoreOptions};
use tenure_core::sweep::BATCH;
use tenure_core::{Clock, Error, Result};

use crate::disk::{FileDisk, FilePages};
use crate::error::Cause;
use crate::file::{self, unreadable};
use crate::found::Found;
use crate::mark::mark_path;
use crate::open_file::OpenFile;
use crate::reader::Readers;
use crate::sql::{read_instant, statements};
use crate::watch;

statements! { "recall.sql":
    IDENTITY = "identity",
}

statements! { "group.sql":
    HIGH_WATER = "high_water",
}

/// Everything in one SQLite file, owned by this process. `sqlite:PATH`.
#[derive(Debug)]
pub struct SqliteStore {
    // Dropped first: the readers close when the writer is done.
    engine: Engine,
    file: Arc<OpenFile>,
    readers: Arc<Readers>,
    options: StoreOptions,
}

impl SqliteStore {
    /// Opens the file at `path`, makes it if it is missing, and owns it until [`close`](Backend::close) or the end of the
    /// process. Everything that was acknowledged is there again; every tenure that was alive gets one full ttl from the
    /// first step on. O(rows); it blocks, so call it at start-up or on a thread that may block.
    ///
    /// # Errors
    /// `Misconfigured`, with nothing changed in the file: another process owns it (named with its address), the path is
    /// a directory or cannot be written, the file is damaged, another program's, or a newer Tenure's. `Unavailable` when
    /// another program holds SQLite's write lock for more than 10 s.
    pub fn open(path: impl AsRef<Path>, options: StoreOptions, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        Self::open_prepared(path.as_ref(), options, clock, |_| {})
    }

    fn open_prepared(
        path: &Path,
        options: StoreOptions,
        clock: Arc<dyn Clock>,
        prepare: impl FnOnce(&mut FileDisk),
    ) -> Result<Arc<Self>> {
        let (path, lock) = file::lock(path, &file::STORE)?;
        let found = Found::look(&path, lock.pin())?;
        let sql = file::open_writer(&path, &file::STORE)?;
        let damaged = |cause: Cause| unreadable(&path, &file::STORE, &cause);
        let high_water = sql.query_row(HIGH_WATER, [], |row| read_instant(row, 0));
        let clock = Arc::new(StoreClock::new(
            clock,
            high_water.map_err(|error| damaged(error.into()))?,
        ));
        let readers = Arc::new(Readers::open(&path, lock.pin()).map_err(damaged)?);
        let mark = mark_path(&path);
        let file = Arc::new(OpenFile::new(&file::STORE, path, Arc::clone(&clock), lock, vec![mark]));
        let mut disk = FileDisk::new(sql, Arc::clone(&file), options.clone(), found);
        prepare(&mut disk);
        let pages = Arc::new(FilePages {
            readers: Arc::downgrade(&readers),
            file: Arc::clone(&file),
        });
        let engine = Engine::start(options.clone(), clock, disk, pages)?;
        watch::start(&file).map_err(|error| {
            Error::unavailable(
                "the threads of the SQLite file could not be started",
                Outcome::Unchanged,
            )
            .because(error)
        })?;
        Ok(Arc::new(Self {
            engine,
            file,
            readers,
            options,
        }))
    }

    /// Writes down where this process serves the store, so that others find it in the lock file ([`crate::owner`]) and
    /// talk to it instead of opening the file.
    ///
    /// # Errors
    /// `Unavailable` when the lock file cannot be written or the store is closed.
    pub fn set_address(&self, listen: &str) -> Result<()> {
        self.file.set_address(listen)
    }

    /// The file, without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// What the store was opened with.
    #[must_use]
    pub fn options(&self) -> &StoreOptions {
        &self.options
    }
}

#[async_trait]
impl Backend for SqliteStore {
    async fn call(&self, ask: StoreRequest) -> Result<Reply> {
        self.file.check_open()?;
        self.engine.call(ask).await
    }

    fn max_ttl(&self) -> Duration {
        self.options.max_ttl
    }

    /// Beats are not split: most are answered from memory. Nor are looks at providers.
    fn part(&self, op: &Op) -> usize {
        match op {
            Op::Beat(_) | Op::Heartbeat(_) | Op::Look(_) => usize::MAX,
            _ => BATCH as usize,
        }
    }

    fn place(&self) -> String {
        format!("sqlite:{}", self.file.path.display())
    }

    fn health(&self) -> Health {
        match self.file.health() {
            Health::Up => self.engine.health(),
            down => down,
        }
    }

    async fn identity(&self) -> Result<Option<String>> {
        let read = |sql: &Connection| Ok(sql.query_row(IDENTITY, [], |row| row.get(0))?);
        self.readers.read(read).await
    }

    async fn until_broken(&self) -> Error {
        tokio::select! {
            error = self.engine.until_broken() => error,
            damaged = self.file.watch.until_damaged() => Error::unavailable(damaged, Outcome::Unchanged),
        }
    }

    async fn examine(&self) -> Vec<Finding> {
        crate::examine::examine(&self.file).await
    }

    async fn close(&self) {
        self.file.begin_to_close();
        self.readers.close().await;
        self.engine.close().await;
    }
}

#[cfg(test)]
mod tests;
