//! Queues single items per group and sends them in batches.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::{Clock, Mono};
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::id::Group;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::BatchSettings;
use super::in_flight::{InFlightBatch, short_answer};
use crate::trace::Caller;

/// Sends one kind of item in batches.
#[async_trait]
pub(crate) trait BatchSender: Send + Sync + 'static {
    /// One item to send.
    type Item: Clone + Send + Sync + 'static;
    /// The reply to one item.
    type Reply: Send + 'static;
    /// The name of the items, in messages.
    const WHAT: &'static str;

    /// Sends a batch and returns one reply per item, in order. It is bounded in time, or each caller has a time-out.
    /// After an `Invalid` error the items are sent again one by one, so that a bad item fails no other.
    async fn send(&self, group: &Group, items: &[Self::Item]) -> Result<Vec<Self::Reply>>;

    /// Called after a batch of `items` was answered or failed.
    fn sent(&self, done: &Result<Vec<Self::Reply>>, items: usize) {
        let _ = (done, items);
    }
}

/// Coalesces items into batches. Clones share state.
pub(crate) struct Batcher<S: BatchSender> {
    inner: Arc<Inner<S>>,
}

impl<S: BatchSender> Clone for Batcher<S> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

pub(super) struct Inner<S: BatchSender> {
    pub(super) sender: S,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) settings: BatchSettings,
    runtime: Handle,
    /// An item that was sent alone was answered without waiting: the store is in this process.
    at_once: AtomicBool,
    state: Mutex<BatchQueues<S>>,
}

struct BatchQueues<S: BatchSender> {
    groups: BTreeMap<Group, Queue<S>>,
    waiting: usize,
}

struct Queue<S: BatchSender> {
    waiting: Vec<Waiter<S>>,
    in_flight: usize,
    lingering: bool,
}

impl<S: BatchSender> Default for Queue<S> {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            in_flight: 0,
            lingering: false,
        }
    }
}

pub(super) struct Waiter<S: BatchSender> {
    pub(super) item: S::Item,
    pub(super) asked_at: Mono,
    pub(super) caller: Caller,
    pub(super) answer: oneshot::Sender<Result<S::Reply>>,
}

impl<S: BatchSender> Batcher<S> {
    /// A batcher in front of `sender`. Batches that no caller sends itself are sent from `runtime`.
    pub(crate) fn new(sender: S, clock: Arc<dyn Clock>, runtime: Handle, settings: BatchSettings) -> Self {
        let state = BatchQueues {
            groups: BTreeMap::new(),
            waiting: 0,
        };
        Self {
            inner: Arc::new(Inner {
                sender,
                clock,
                settings,
                runtime,
                at_once: AtomicBool::new(false),
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

    /// Sends one item, alone or in a batch; always alone to a store in this process.
    ///
    /// # Errors
    /// Those of the sender; `Unavailable` without waiting, with nothing changed, when the queue is full.
    pub(crate) async fn submit(&self, group: &Group, item: S::Item) -> Result<S::Reply> {
        if self.inner.at_once.load(Ordering::Relaxed) {
            return self.inner.send_one(group, &item).await;
        }
        match self.inner.enqueue(group, &item)? {
            // It is in flight until the reply.
            Enqueued::SendNow(batch) => {
                let reply = self.inner.send_alone(group, &item).await;
                drop(batch);
                reply
            }
            Enqueued::Queued(answer) => answer.await.unwrap_or_else(|_| {
                Err(Error::unavailable(
                    format!("a batch of {} was dropped: its runtime has shut down", S::WHAT),
                    Outcome::Unknown,
                ))
            }),
        }
    }
}

enum Enqueued<S: BatchSender> {
    /// No batch of this group is in flight: the caller sends its item itself.
    SendNow(InFlightBatch<S>),
    /// The item is queued; a later batch answers it.
    Queued(oneshot::Receiver<Result<S::Reply>>),
}

impl<S: BatchSender> Inner<S> {
    /// Sends one item from the caller's own task: an idle group needs no task and no channel. After a reply at the first
    /// poll there are no batches. They would save nothing, and what waits for a write must not share a batch with what does
    /// not.
    async fn send_alone(&self, group: &Group, item: &S::Item) -> Result<S::Reply> {
        let mut sending = pin!(self.send_one(group, item));
        let first = futures_util::poll!(sending.as_mut());
        if matches!(first, Poll::Ready(Ok(_))) {
            self.at_once.store(true, Ordering::Relaxed);
        }
        match first {
            Poll::Ready(reply) => reply,
            Poll::Pending => sending.await,
        }
    }

    pub(super) async fn send_one(&self, group: &Group, item: &S::Item) -> Result<S::Reply> {
        let answers = self.send(group, std::slice::from_ref(item)).await?;
        answers.into_iter().next().ok_or_else(short_answer::<S>)
    }

    pub(super) async fn send(&self, group: &Group, items: &[S::Item]) -> Result<Vec<S::Reply>> {
        let done = self.sender.send(group, items).await;
        self.sender.sent(&done, items.len());
        done
    }

    fn enqueue(self: &Arc<Self>, group: &Group, item: &S::Item) -> Result<Enqueued<S>> {
        let mut state = self.state();
        let waiting = state.waiting;
        let queue = state.groups.entry(group.clone()).or_default();
        if queue.in_flight == 0 && queue.waiting.is_empty() {
            queue.in_flight = 1;
            return Ok(Enqueued::SendNow(InFlightBatch::new(self, group)));
        }
        if waiting >= self.settings.queue {
            return Err(
                Error::unavailable(format!("{waiting} {} are already queued", S::WHAT), Outcome::Unchanged)
                    .with_retry_after(Duration::from_millis(100)),
            );
        }
        let (answer, answered) = oneshot::channel();
        queue.waiting.push(Waiter {
            item: item.clone(),
            asked_at: self.clock.mono(),
            caller: Caller::current(),
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
        Ok(Enqueued::Queued(answered))
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

    /// Takes the next batch from the queue, if there is one and another batch may be in flight.
    fn next_batch(&self, state: &mut BatchQueues<S>, group: &Group) -> Option<Vec<Waiter<S>>> {
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

    /// Sends a batch. Not under the lock: a runtime that has ended drops the batch immediately, and the drop takes the
    /// lock.
    fn launch(self: &Arc<Self>, group: &Group, batch: Option<Vec<Waiter<S>>>) {
        if let Some(batch) = batch {
            self.runtime.spawn(InFlightBatch::new(self, group).send_all(batch));
        }
    }

    /// A batch is no longer in flight: sends what was queued in the meantime.
    pub(super) fn batch_finished(self: &Arc<Self>, group: &Group) {
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

    fn state(&self) -> MutexGuard<'_, BatchQueues<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
