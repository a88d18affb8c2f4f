//! Waiting for leases: the waiting requests of one process.
//!
//! Each request has a number and a place in the queue of its lease. A store of one process grants a lease to its first
//! waiter in the step that frees it; a shared store reserves it for the process that has the waiter's connection. Either
//! way the store announces the turn, and only that request asks again, with the same number. Nothing polls.
//!
//! A request that is dropped withdraws in the background: its place, or the grant that came at the same moment. A
//! withdrawal compares the number, so it cannot take the lease from a later request of the same tenure.

mod listen;
mod place;
mod withdrawal;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::{Clock, jitter};
use tenure_core::error::Result;
use tenure_core::id::{Group, NodeId, Term};
use tenure_core::lease::{Acquire, AcquireOutcome, Acquired, Queue, RequestId};
use tenure_core::store::{Call, Store};
use tenure_core::timeout::Timeout;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use self::place::QueuePlace;
use self::withdrawal::{RequestKey, Withdrawal};
use crate::loops::FLOOR;
use crate::sweeper::Sweeper;

/// Concurrent calls to the store for waiting requests. After a reconnect all of them ask again.
const AT_ONCE: usize = 64;

/// The waiting requests of one process on one store. Clones share state.
#[derive(Clone)]
pub struct LeaseWaits {
    inner: Arc<Inner>,
}

/// The result of waiting for a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waited {
    /// The answer of the store, with one outcome: granted, or refused without a wait.
    Answered(Acquired),
    /// The wait is over. The outcome says why the lease was not granted at its end.
    Over(Acquired),
    /// A later request of the same tenure took over the place in the queue.
    Replaced,
}

struct Inner {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    runtime: Handle,
    /// The time-out of one call.
    patience: Duration,
    /// Cancelled when the process stops.
    closing: CancellationToken,
    sweeper: Option<Sweeper>,
    asks: Semaphore,
    waiting: Mutex<Waiting>,
    groups: Arc<WaitingGroups>,
}

#[derive(Default)]
struct Waiting {
    /// In order, so that a seeded simulation wakes them in the same order every time.
    requests: BTreeMap<RequestId, Arc<Waiter>>,
    /// The newest request of each lease and tenure that has a place.
    newest: HashMap<RequestKey, RequestId>,
    /// The newest withdrawal of each lease and tenure.
    withdrawals: HashMap<RequestKey, Arc<Withdrawal>>,
    /// Whether a task waits for the store to announce turns.
    listening: bool,
}

/// One waiting request.
#[derive(Default)]
struct Waiter {
    /// Its turn may have come.
    turn: Notify,
    /// A later request has its place.
    replaced: CancellationToken,
}

/// The groups in which this process has waiting requests. Its ticks confirm their places.
pub(crate) struct WaitingGroups {
    node: NodeId,
    counts: Mutex<BTreeMap<Group, usize>>,
}

impl WaitingGroups {
    /// The name of this process, if it waits in the group.
    pub(crate) fn node_in(&self, group: &Group) -> Option<&NodeId> {
        self.counts().contains_key(group).then_some(&self.node)
    }

    fn all(&self) -> Vec<Group> {
        self.counts().keys().cloned().collect()
    }

    fn enter(&self, group: &Group) {
        *self.counts().entry(group.clone()).or_default() += 1;
    }

    fn leave(&self, group: &Group) {
        let mut counts = self.counts();
        if let Some(count) = counts.get_mut(group) {
            *count -= 1;
            if *count == 0 {
                counts.remove(group);
            }
        }
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<Group, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a request stopped waiting.
enum Wakeup {
    Turn,
    Replaced,
    Closing,
    Over,
}

impl LeaseWaits {
    /// The waits on a store. Each call to the store is bounded by `patience`; background work runs on `runtime`. The
    /// sweeper of the process, if any, confirms the places. When `closing` is cancelled, waiting requests are withdrawn
    /// and answered `Unavailable`.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        runtime: Handle,
        patience: Duration,
        sweeper: Option<Sweeper>,
        closing: CancellationToken,
    ) -> Self {
        let node = format!("n{:016x}", clock.entropy());
        let groups = Arc::new(WaitingGroups {
            node: NodeId::new(node).expect("hexadecimal digits are a name"),
            counts: Mutex::default(),
        });
        if let Some(sweeper) = &sweeper {
            sweeper.confirm(Arc::clone(&groups));
        }
        Self {
            inner: Arc::new(Inner {
                store,
                clock,
                runtime,
                patience,
                closing,
                sweeper,
                asks: Semaphore::new(AT_ONCE),
                waiting: Mutex::default(),
                groups,
            }),
        }
    }

    /// Acquires one lease, and waits up to `within` for it. `call` limits joining the queue, not the wait. Dropping the
    /// future gives up the place, and the lease if it was granted at the same moment.
    ///
    /// # Errors
    /// As [`LeaseStore::acquire_with`](tenure_core::lease::LeaseStore::acquire_with); `Unavailable` with nothing changed
    /// when the process stops.
    pub async fn acquire(&self, group: &Group, acquire: Acquire, within: Duration, call: Call) -> Result<Waited> {
        let inner = &self.inner;
        let acquire = Acquire {
            queue: Some(inner.queue(within)),
            ..acquire
        };
        if inner.store.is_remote() {
            // The daemon has the queue.
            let answered = inner.store.acquire_with(group, acquire, call).await;
            return answered.map(Waited::Answered);
        }
        let deadline = inner.clock.mono() + within;
        let mut place = QueuePlace::open(inner, group, acquire).await?;
        let acquired = place.ask(within, call).await?;
        if !is_waiting(&acquired) {
            place.left(is_granted(&acquired));
            return Ok(Waited::Answered(acquired));
        }
        place.joined();
        place.wait(deadline).await
    }

    /// The number of waiting requests.
    #[must_use]
    pub fn count(&self) -> usize {
        self.inner.waiting().requests.len()
    }
}

impl Inner {
    fn queue(&self, within: Duration) -> Queue {
        let request = RequestId::new(self.clock.entropy() & Term::MAX).expect("masked to the range");
        Queue {
            within,
            request,
            node: self.groups.node.clone(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bounds a call that changes something.
    async fn step<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        // The semaphore is never closed.
        let _slot = self.asks.acquire().await;
        let bound = Timeout::change(self.patience);
        bound.step(&*self.clock, &*self.store, call).await
    }

    /// The pause after a failed call.
    fn pause(&self) -> Duration {
        jitter(&*self.clock, self.patience / 4, 50).max(FLOOR)
    }
}

fn is_waiting(acquired: &Acquired) -> bool {
    matches!(acquired.outcomes.first(), Some(AcquireOutcome::Waiting { .. }))
}

fn is_granted(acquired: &Acquired) -> bool {
    acquired.outcomes.iter().any(|outcome| outcome.token().is_some())
}
