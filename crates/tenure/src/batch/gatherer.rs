//! Gathering what many ask one by one into batches, per group.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::{Clock, Mono};
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::id::Group;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::BatchSettings;
use super::flight::Flight;

/// What is gathered, and where a batch of it goes.
#[async_trait]
pub(crate) trait Gathered: Send + Sync + 'static {
    /// One thing to ask.
    type Item: Clone + Send + Sync + 'static;
    /// What it is answered.
    type Answer: Send + 'static;
    /// The items, in messages.
    const WHAT: &'static str;

    /// Sends a batch; the answers come in the order asked, one each. It is answered within a time, or its callers each have
    /// a time-out. Whatever makes it fail with `Invalid` is asked
    /// again item by item, so that one bad item fails no other.
    async fn send(&self, group: &Group, items: &[Self::Item]) -> Result<Vec<Self::Answer>>;

    /// A batch of so many came to this.
    fn sent(&self, done: &Result<Vec<Self::Answer>>, items: usize) {
        let _ = (done, items);
    }
}

/// Gathers. Cheap to clone; all clones are one.
pub(crate) struct Gatherer<S: Gathered> {
    inner: Arc<Inner<S>>,
}

impl<S: Gathered> Clone for Gatherer<S> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

pub(super) struct Inner<S: Gathered> {
    pub(super) sender: S,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) settings: BatchSettings,
    runtime: Handle,
    state: Mutex<State<S>>,
}

struct State<S: Gathered> {
    groups: BTreeMap<Group, Queue<S>>,
    waiting: usize,
}

struct Queue<S: Gathered> {
    waiting: Vec<Waiter<S>>,
    in_flight: usize,
    lingering: bool,
}

impl<S: Gathered> Default for Queue<S> {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            in_flight: 0,
            lingering: false,
        }
    }
}

pub(super) struct Waiter<S: Gathered> {
    pub(super) item: S::Item,
    pub(super) asked_at: Mono,
    pub(super) answer: oneshot::Sender<Result<S::Answer>>,
}

impl<S: Gathered> Gatherer<S> {
    /// One in front of a sender. Batches that are not sent by a caller itself are sent from `runtime`.
    pub(crate) fn new(sender: S, clock: Arc<dyn Clock>, runtime: Handle, settings: BatchSettings) -> Self {
        let state = State {
            groups: BTreeMap::new(),
            waiting: 0,
        };
        Self {
            inner: Arc::new(Inner {
                sender,
                clock,
                settings,
                runtime,
                state: Mutex::new(state),
            }),
        }
    }

    pub(super) fn settings(&self) -> &BatchSettings {
        &self.inner.settings
    }

    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.inner.state().groups.is_empty()
    }

    /// Sends one item, alone or in company.
    ///
    /// # Errors
    /// Those of the sender; `Unavailable` at once, with nothing changed, when too many are waiting already.
    pub(crate) async fn ask(&self, group: &Group, item: S::Item) -> Result<S::Answer> {
        match self.inner.enqueue(group, &item)? {
            Place::Idle(flight) => flight.alone(&item).await,
            Place::Waiting(answer) => answer.await.unwrap_or_else(|_| {
                Err(Error::unavailable(
                    format!("a batch of {} was given up; its runtime has ended", S::WHAT),
                    Outcome::Unknown,
                ))
            }),
        }
    }
}

enum Place<S: Gathered> {
    /// Nothing is under way in this group: the caller sends its item itself.
    Idle(Flight<S>),
    /// It will be answered from a batch that is yet to be sent.
    Waiting(oneshot::Receiver<Result<S::Answer>>),
}

impl<S: Gathered> Inner<S> {
    fn enqueue(self: &Arc<Self>, group: &Group, item: &S::Item) -> Result<Place<S>> {
        let mut state = self.state();
        let waiting = state.waiting;
        let queue = state.groups.entry(group.clone()).or_default();
        if queue.in_flight == 0 && queue.waiting.is_empty() {
            queue.in_flight = 1;
            return Ok(Place::Idle(Flight::new(self, group)));
        }
        if waiting >= self.settings.queue {
            return Err(
                Error::unavailable(format!("{waiting} {} are waiting already", S::WHAT), Outcome::Unchanged)
                    .with_retry_after(Duration::from_millis(100)),
            );
        }
        let (answer, answered) = oneshot::channel();
        queue.waiting.push(Waiter {
            item: item.clone(),
            asked_at: self.clock.mono(),
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
    fn next_batch(&self, state: &mut State<S>, group: &Group) -> Option<Vec<Waiter<S>>> {
        let queue = state.groups.get_mut(group)?;
        if queue.waiting.is_empty() || queue.in_flight >= self.settings.in_flight {
            return None;
        }
        let batch: Vec<Waiter<S>> = queue
            .waiting
            .drain(..queue.waiting.len().min(self.settings.max_batch))
            .collect();
        queue.in_flight += 1;
        state.waiting -= batch.len();
        Some(batch)
    }

    /// Sends a batch. Not under the lock: a runtime that has ended drops the flight at once, which takes the lock.
    fn launch(self: &Arc<Self>, group: &Group, batch: Option<Vec<Waiter<S>>>) {
        if let Some(batch) = batch {
            self.runtime.spawn(Flight::new(self, group).together(batch));
        }
    }

    /// A batch is no longer under way: what gathered meanwhile goes at once.
    pub(super) fn landed(self: &Arc<Self>, group: &Group) {
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

    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
