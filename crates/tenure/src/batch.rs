//! Coalescing single beats into batches.
//!
//! Measured: a beat that travels alone costs the store several times what it costs in a batch of 64 or more. So the beats
//! of many callers are gathered, per group, while a batch is under way: an idle batcher sends at once (no latency is
//! added where there is nothing to gain), a busy one gathers for at most [`BatchSettings::linger`] or until
//! [`BatchSettings::max_batch`] are there.
//!
//! A beat is only ever answered from a batch that was sent *after* it was asked for: an older answer would confirm an
//! older moment, and a caller counts its trust from when it asked.

mod flight;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::Clock;
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::id::Group;
use tenure_core::membership::{Beat, BeatReply};
use tenure_core::store::Store;
use tenure_core::time::StoreTime;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use flight::Flight;

/// How beats are gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSettings {
    /// The most beats of a batch. Larger saves a little, and keeps the store busy for longer at a time.
    pub max_batch: usize,
    /// How long a beat waits for company at most, while earlier ones are under way.
    pub linger: Duration,
    /// The most batches of one group under way at once. More hides latency; one alone would let a slow batch hold up all.
    pub in_flight: usize,
    /// The most beats that wait, over all groups. Beyond it beats fail at once instead of waiting for their death.
    pub queue: usize,
    /// After this long a batch counts as lost, whatever the store's own timeout.
    pub give_up: Duration,
}

impl Default for BatchSettings {
    fn default() -> Self {
        Self {
            max_batch: 200,
            linger: Duration::from_millis(1),
            in_flight: 4,
            queue: 20_000,
            give_up: Duration::from_secs(2),
        }
    }
}

/// What a beat came to, and the store's time of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beated {
    /// The answer.
    pub reply: BeatReply,
    /// The store's time of the batch that it was in.
    pub as_of: StoreTime,
}

/// Gathers beats. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct BeatBatcher {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    settings: BatchSettings,
    runtime: Handle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    groups: BTreeMap<Group, Queue>,
    waiting: usize,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiter>,
    in_flight: usize,
    lingering: bool,
}

struct Waiter {
    beat: Beat,
    answer: oneshot::Sender<Result<Beated>>,
}

impl fmt::Debug for BeatBatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BeatBatcher")
            .field("settings", &self.inner.settings)
            .finish_non_exhaustive()
    }
}

impl BeatBatcher {
    /// A batcher in front of a store. Batches that are not sent by a caller itself are sent from `runtime`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, runtime: Handle, settings: BatchSettings) -> Self {
        Self {
            inner: Arc::new(Inner {
                store,
                clock,
                settings,
                runtime,
                state: Mutex::default(),
            }),
        }
    }

    /// Sends one beat, alone or in company. O(1) calls of the store per batch.
    ///
    /// # Errors
    /// Those of [`MembershipStore::beat`](tenure_core::membership::MembershipStore::beat); `Unavailable` at once, with
    /// nothing changed, when too many beats are waiting already.
    pub async fn beat(&self, group: &Group, beat: Beat) -> Result<Beated> {
        match self.inner.enqueue(group, &beat)? {
            Place::Idle(flight) => flight.alone(&beat).await,
            Place::Waiting(answer) => answer.await.unwrap_or_else(|_| {
                Err(Error::unavailable(
                    "the batch of this beat was given up; its runtime has ended",
                    Outcome::Unknown,
                ))
            }),
        }
    }
}

enum Place {
    /// Nothing is under way in this group: the caller sends its beat itself.
    Idle(Flight),
    /// It will be answered from a batch that is yet to be sent.
    Waiting(oneshot::Receiver<Result<Beated>>),
}

impl Inner {
    fn enqueue(self: &Arc<Self>, group: &Group, beat: &Beat) -> Result<Place> {
        let mut state = self.state();
        let waiting = state.waiting;
        let queue = state.groups.entry(group.clone()).or_default();
        if queue.in_flight == 0 && queue.waiting.is_empty() {
            queue.in_flight = 1;
            return Ok(Place::Idle(Flight::new(self, group)));
        }
        if waiting >= self.settings.queue {
            return Err(
                Error::unavailable(format!("{waiting} beats are waiting already"), Outcome::Unchanged)
                    .with_retry_after(Duration::from_millis(100)),
            );
        }
        let (answer, answered) = oneshot::channel();
        queue.waiting.push(Waiter {
            beat: beat.clone(),
            answer,
        });
        let may_send = queue.in_flight < self.settings.in_flight;
        let full = queue.waiting.len() >= self.settings.max_batch;
        let linger = may_send && !full && !queue.lingering;
        queue.lingering |= linger;
        state.waiting += 1;
        let batch = if full { self.next_batch(&mut state, group) } else { None };
        drop(state);
        self.launch(group, batch);
        if linger {
            self.runtime.spawn(Arc::clone(self).linger(group.clone()));
        }
        Ok(Place::Waiting(answered))
    }

    async fn linger(self: Arc<Self>, group: Group) {
        self.clock.sleep(self.settings.linger).await;
        let mut state = self.state();
        if let Some(queue) = state.groups.get_mut(&group) {
            queue.lingering = false;
        }
        let batch = self.next_batch(&mut state, &group);
        drop(state);
        self.launch(&group, batch);
    }

    /// Takes a batch of what waits, if there is anything and one more may be under way.
    fn next_batch(&self, state: &mut State, group: &Group) -> Option<Vec<Waiter>> {
        let queue = state.groups.get_mut(group)?;
        if queue.waiting.is_empty() || queue.in_flight >= self.settings.in_flight {
            return None;
        }
        let batch: Vec<Waiter> = queue
            .waiting
            .drain(..queue.waiting.len().min(self.settings.max_batch))
            .collect();
        queue.in_flight += 1;
        state.waiting -= batch.len();
        Some(batch)
    }

    /// Sends a batch. Not under the lock: a runtime that has ended drops the flight at once, which takes the lock.
    fn launch(self: &Arc<Self>, group: &Group, batch: Option<Vec<Waiter>>) {
        if let Some(batch) = batch {
            self.runtime.spawn(Flight::new(self, group).together(batch));
        }
    }

    /// A batch is no longer under way: what gathered meanwhile goes at once.
    fn landed(self: &Arc<Self>, group: &Group) {
        let mut state = self.state();
        let Some(queue) = state.groups.get_mut(group) else {
            return;
        };
        queue.in_flight = queue.in_flight.saturating_sub(1);
        if queue.waiting.is_empty() && queue.in_flight == 0 {
            state.groups.remove(group);
            return;
        }
        let batch = self.next_batch(&mut state, group);
        drop(state);
        self.launch(group, batch);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
