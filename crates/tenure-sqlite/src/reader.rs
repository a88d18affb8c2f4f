//! Reads: a few connections of their own, so that no read waits for the writer.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tenure_core::error::Outcome;
use tenure_core::{Error, ErrorKind, Result};
use tokio::sync::Semaphore;

use crate::error::{Cause, closed};
use crate::file::open_reader;

/// How many reads run concurrently.
const READERS: u32 = 4;

/// A pool of read-only connections.
#[derive(Debug)]
pub(crate) struct Readers {
    idle: Arc<Mutex<Idle>>,
    permits: Arc<Semaphore>,
}

/// The connections that are not in use.
#[derive(Debug)]
struct Idle {
    connections: Vec<Connection>,
    /// The locked database, closed after them.
    _pin: Arc<File>,
}

impl Readers {
    /// Opens them all.
    pub(crate) fn open(path: &Path, pin: &Arc<File>) -> Result<Self, Cause> {
        let idle = Idle {
            connections: (0..READERS).map(|_| connect(path)).collect::<Result<_, Cause>>()?,
            _pin: Arc::clone(pin),
        };
        Ok(Self {
            idle: Arc::new(Mutex::new(idle)),
            permits: Arc::new(Semaphore::new(READERS as usize)),
        })
    }

    /// Runs a read on a thread that may block. A caller that gives up leaves it to finish; reads are bounded.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Cause> + Send + 'static,
    ) -> Result<T> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| closed())?;
        let idle = Arc::clone(&self.idle);
        let task = tokio::task::spawn_blocking(move || {
            let connection = lock(&idle).connections.pop().ok_or_else(closed)?;
            let work = std::panic::AssertUnwindSafe(|| read(&connection));
            let done = std::panic::catch_unwind(work);
            lock(&idle).connections.push(connection);
            drop(permit);
            match done {
                Ok(done) => done.map_err(|cause| cause.to_error()),
                Err(_) => Err(Error::new(
                    ErrorKind::Internal,
                    "a read of the store panicked; please report it",
                )),
            }
        });
        task.await.unwrap_or_else(|error| {
            Err(Error::unavailable("the runtime is shutting down", Outcome::Unchanged).because(error))
        })
    }

    /// Waits for running reads and closes the connections.
    pub(crate) async fn close(&self) {
        let all = self.permits.acquire_many(READERS).await;
        self.permits.close();
        drop(all);
        lock(&self.idle).connections.clear();
    }
}

/// Opens a connection that has read. From then on it is one of those that have the log open, so that SQLite does not delete
/// the log when the writer's connection is opened again.
fn connect(path: &Path) -> Result<Connection, Cause> {
    let sql = open_reader(path)?;
    sql.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(sql)
}

fn lock(idle: &Mutex<Idle>) -> std::sync::MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
