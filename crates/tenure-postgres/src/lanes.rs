//! The shares of the connections: writes that hang leave connections for reads, and both leave some for taking providers
//! offline.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a call does, which decides how many connections its kind may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Reads.
    Read,
    /// Changes that callers ask for.
    Write,
    /// Heartbeats, and ended tenures.
    Liveness,
}

/// The limits of the kinds of calls, and of those that wait.
pub(crate) struct Lanes {
    /// Reads and writes together.
    foreground: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    liveness: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// A place among the calls that wait.
pub(crate) type Place = OwnedSemaphorePermit;

/// The right to hold a connection.
pub(crate) struct Share {
    _all: OwnedSemaphorePermit,
    _write: Option<OwnedSemaphorePermit>,
}

impl Lanes {
    /// For this many connections and waiting calls.
    pub(crate) fn new(connections: usize, waiting: usize) -> Self {
        let (reads, liveness) = (connections.div_ceil(4), connections.div_ceil(8));
        let foreground = connections.saturating_sub(liveness).max(1);
        Self {
            foreground: Arc::new(Semaphore::new(foreground)),
            writes: Arc::new(Semaphore::new(foreground.saturating_sub(reads).max(1))),
            liveness: Arc::new(Semaphore::new(liveness)),
            waiting: Arc::new(Semaphore::new(waiting)),
        }
    }

    /// A place among the calls that wait; `None` if there are too many.
    pub(crate) fn queue(&self) -> Option<Place> {
        Arc::clone(&self.waiting).try_acquire_owned().ok()
    }

    /// Waits until another call of this kind may hold a connection. The semaphores are never closed.
    pub(crate) async fn enter(&self, lane: Lane) -> Option<Share> {
        let _write = match lane {
            Lane::Write => Some(Arc::clone(&self.writes).acquire_owned().await.ok()?),
            Lane::Read | Lane::Liveness => None,
        };
        let all = match lane {
            Lane::Read | Lane::Write => &self.foreground,
            Lane::Liveness => &self.liveness,
        };
        let _all = Arc::clone(all).acquire_owned().await.ok()?;
        Some(Share { _all, _write })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// The number of further calls of this kind that may hold a connection.
    fn left(lanes: &Lanes, lane: Lane, held: &mut Vec<Share>) -> usize {
        let before = held.len();
        while let Poll::Ready(Some(share)) = pin!(lanes.enter(lane)).poll(&mut Context::from_waker(Waker::noop())) {
            held.push(share);
        }
        held.len() - before
    }

    #[test]
    fn no_kind_of_call_takes_all_connections() {
        for (connections, writes, reads, liveness) in [(15, 9, 4, 2), (3, 1, 1, 1), (5, 2, 2, 1)] {
            let (lanes, mut held) = (Lanes::new(connections, 1), Vec::new());
            assert_eq!(left(&lanes, Lane::Write, &mut held), writes);
            assert_eq!(left(&lanes, Lane::Read, &mut held), reads);
            assert_eq!(left(&lanes, Lane::Liveness, &mut held), liveness);
            let (lanes, mut held) = (Lanes::new(connections, 1), Vec::new());
            assert_eq!(
                left(&lanes, Lane::Read, &mut held),
                writes + reads,
                "reads may use those of writes"
            );
            assert_eq!(left(&lanes, Lane::Liveness, &mut held), liveness);
        }
    }
}
