//! One waiting request and its place in the queue.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::id::{Group, LeaseName};
use tenure_core::lease::{Acquire, AcquireOutcome, Acquired, Queue};
use tenure_core::store::Call;

use super::withdrawal::Withdrawal;
use super::{Inner, Waited, Waiter, Wakeup, is_granted, is_waiting};

/// A waiting request. Dropping it withdraws what it may have at the store.
pub(super) struct QueuePlace {
    inner: Arc<Inner>,
    group: Group,
    acquire: Acquire,
    lease: LeaseName,
    queue: Queue,
    waiter: Arc<Waiter>,
    /// Whether the store may have a place or a grant of this request.
    open: bool,
    /// Whether a call without an answer may still take effect.
    unanswered: bool,
    /// Whether it has the number of an earlier request, of which a call may still take effect.
    follows: bool,
}

impl QueuePlace {
    /// Registers a request, so that its turn is noticed from the first call on. If an earlier request of the tenure is
    /// being withdrawn, this one takes over its number, and what it may have at the store.
    ///
    /// # Errors
    /// `Invalid` without exactly one lease or without a queue.
    pub(super) async fn open(inner: &Arc<Inner>, group: &Group, acquire: Acquire) -> Result<Self> {
        let ([lease], Some(queue)) = (&acquire.leases[..], &acquire.queue) else {
            return Err(Error::invalid("a wait is for exactly one lease"));
        };
        let (lease, mut queue) = (lease.clone(), queue.clone());
        let key = (group.clone(), lease.clone(), acquire.tenure.clone());
        let earlier = inner.take_over(&key).await;
        if let Some(request) = earlier {
            queue.request = request;
        }
        let waiter = Arc::new(Waiter::default());
        inner.groups.enter(group);
        inner.register(queue.request, &waiter);
        Ok(Self {
            inner: Arc::clone(inner),
            group: group.clone(),
            acquire,
            lease,
            queue,
            waiter,
            open: earlier.is_some(),
            unanswered: false,
            follows: earlier.is_some(),
        })
    }

    /// Sends the request, for what is left of the wait.
    pub(super) async fn ask(&mut self, within: Duration, call: Call) -> Result<Acquired> {
        let queue = Some(Queue {
            within,
            ..self.queue.clone()
        });
        let acquire = Acquire {
            queue,
            ..self.acquire.clone()
        };
        let had_place = std::mem::replace(&mut self.open, true);
        self.unanswered = true;
        let asked = self.inner.store.acquire_with(&self.group, acquire, call);
        let answer = self.inner.step(asked).await;
        match &answer {
            Ok(_) => self.unanswered = false,
            Err(error) if error.outcome() == Outcome::Unchanged => {
                self.unanswered = false;
                self.open = had_place;
            }
            Err(_) => {}
        }
        answer
    }

    /// The store has no place and no grant of this request that nobody else answers for. If the request follows another and
    /// was not granted, the place of that one may be left.
    pub(super) fn left(&mut self, is_granted: bool) {
        self.open = self.follows && !is_granted;
        self.unanswered = false;
    }

    /// The store has confirmed the place. An older request of the same tenure has lost it.
    pub(super) fn joined(&self) {
        let key = (self.group.clone(), self.lease.clone(), self.acquire.tenure.clone());
        let mut waiting = self.inner.waiting();
        let older = waiting.newest.insert(key, self.queue.request);
        let older = older.filter(|older| *older != self.queue.request);
        if let Some(waiter) = older.and_then(|older| waiting.requests.get(&older)) {
            waiter.replaced.cancel();
        }
        drop(waiting);
        // The lease may come free at a moment that the janitor did not have to look at before.
        if let Some(sweeper) = &self.inner.sweeper {
            sweeper.touch(&self.group);
        }
    }

    /// Waits for the turn, until `deadline`.
    pub(super) async fn wait(mut self, deadline: Mono) -> Result<Waited> {
        let inner = Arc::clone(&self.inner);
        loop {
            match self.wakeup(deadline).await {
                Wakeup::Turn => {}
                Wakeup::Over => return self.over().await,
                Wakeup::Closing => return Err(self.close().await),
                Wakeup::Replaced => {
                    // The later request has the place.
                    self.left(true);
                    return Ok(Waited::Replaced);
                }
            }
            match self.ask(deadline.since(inner.clock.mono()), Call::default()).await {
                Ok(acquired) if is_waiting(&acquired) => {}
                Ok(acquired) => {
                    self.left(is_granted(&acquired));
                    return Ok(Waited::Answered(granted(acquired)));
                }
                Err(error) if is_passing(&error) && inner.clock.mono() < deadline => {
                    inner.clock.sleep(inner.pause()).await;
                    self.waiter.turn.notify_one();
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn wakeup(&self, deadline: Mono) -> Wakeup {
        let left = deadline.since(self.inner.clock.mono());
        tokio::select! {
            biased;
            () = self.waiter.replaced.cancelled() => Wakeup::Replaced,
            () = self.waiter.turn.notified() => Wakeup::Turn,
            () = self.inner.closing.cancelled() => Wakeup::Closing,
            () = self.inner.clock.sleep(left) => Wakeup::Over,
        }
    }

    /// The wait is over: asks once more for a wait of zero. That step grants the lease, or ends the place and says who has
    /// the lease, so that no reader sees a grant that is not answered.
    async fn over(mut self) -> Result<Waited> {
        let acquired = self.ask(Duration::ZERO, Call::default()).await?;
        let is_granted = is_granted(&acquired);
        self.left(is_granted);
        Ok(match is_granted {
            true => Waited::Answered(granted(acquired)),
            false => Waited::Over(acquired),
        })
    }

    /// The process stops: gives up the place.
    async fn close(mut self) -> Error {
        let Self { group, lease, .. } = &self;
        let (tenure, request) = (&self.acquire.tenure, self.queue.request);
        let withdrawing = self
            .inner
            .store
            .withdraw(group, tenure, lease, request, Call::default());
        // If it fails, it is repeated in the background.
        if self.inner.step(withdrawing).await.is_ok() {
            self.open = self.unanswered || self.follows;
        }
        Error::unavailable(
            "the process that held the place in the queue is stopping; acquire again",
            Outcome::Unchanged,
        )
    }
}

/// Whether a call of this process may succeed when it is repeated. It has no not-after but that of its own time-out.
pub(super) fn is_passing(error: &Error) -> bool {
    error.is_unavailable() || error.kind() == ErrorKind::TooLate
}

/// A store of one process has granted the lease before the waiter asks again.
fn granted(mut acquired: Acquired) -> Acquired {
    for outcome in &mut acquired.outcomes {
        if let AcquireOutcome::Kept {
            token,
            place,
            generation,
        } = *outcome
        {
            *outcome = AcquireOutcome::Granted {
                token,
                place,
                generation,
                from: None,
            };
        }
    }
    acquired
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let request = self.queue.request;
        self.inner.groups.leave(&self.group);
        let key = (self.group.clone(), self.lease.clone(), self.acquire.tenure.clone());
        self.inner.deregister(request, &key);
        if self.open {
            Withdrawal::start(&self.inner, key, request, self.unanswered || self.follows);
        }
    }
}
