//! The shares of the connections: writes that hang leave connections for reads, and for taking providers offline.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a call does, which decides how many connections its kind may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Reads: any number.
    Read,
    /// Changes that callers ask for.
    Write,
    /// Heartbeats, and ended tenures.
    Liveness,
}

/// The limits of the kinds of calls, and of those that wait.
pub(crate) struct Lanes {
    writes: Arc<Semaphore>,
    liveness: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// A place among the calls that wait.
pub(crate) type Place = OwnedSemaphorePermit;

impl Lanes {
    /// For this many connections and waiting calls. A quarter of the connections is for reads alone.
    pub(crate) fn new(connections: usize, waiting: usize) -> Self {
        let (reads, liveness) = (connections.div_ceil(4), connections.div_ceil(8));
        let writes = connections.saturating_sub(reads + liveness).max(1);
        Self {
            writes: Arc::new(Semaphore::new(writes)),
            liveness: Arc::new(Semaphore::new(liveness)),
            waiting: Arc::new(Semaphore::new(waiting)),
        }
    }

    /// A place among the calls that wait; `None` if there are too many.
    pub(crate) fn queue(&self) -> Option<Place> {
        Arc::clone(&self.waiting).try_acquire_owned().ok()
    }

    /// Waits until another call of this kind may hold a connection.
    pub(crate) async fn enter(&self, lane: Lane) -> Option<OwnedSemaphorePermit> {
        let lane = match lane {
            Lane::Read => return None,
            Lane::Write => &self.writes,
            Lane::Liveness => &self.liveness,
        };
        // They are never closed.
        Arc::clone(lane).acquire_owned().await.ok()
    }
}
