//! The task that waits for the store to announce turns. It runs while any request waits.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::within;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::lease::{NODE_SILENCE, RequestId, WaitingTurn};
use tenure_core::timeout::Timeout;

use super::withdrawal::RequestKey;
use super::{Inner, Waiter};
use crate::loops::FLOOR;

/// How long one call waits for turns.
const LISTEN: Duration = Duration::from_secs(10);
/// After a failure, a short call shows whether the store answers again.
const CHECK: Duration = Duration::from_millis(100);

impl Inner {
    /// Adds a request, and starts the task with the first one.
    pub(super) fn register(self: &Arc<Self>, request: RequestId, waiter: &Arc<Waiter>) {
        let mut waiting = self.waiting();
        waiting.requests.insert(request, Arc::clone(waiter));
        if !std::mem::replace(&mut waiting.listening, true) {
            self.runtime.spawn(Arc::clone(self).listen());
        }
    }

    pub(super) fn deregister(&self, request: RequestId, key: &RequestKey) {
        let mut waiting = self.waiting();
        waiting.requests.remove(&request);
        if waiting.newest.get(key) == Some(&request) {
            waiting.newest.remove(key);
        }
    }

    async fn listen(self: Arc<Self>) {
        let mut lost = false;
        loop {
            {
                let mut waiting = self.waiting();
                if waiting.requests.is_empty() {
                    waiting.listening = false;
                    return;
                }
            }
            let asked = self.clock.mono();
            match self.turns(if lost { CHECK } else { LISTEN }).await {
                Ok(turns) => {
                    if std::mem::take(&mut lost) {
                        tracing::info!("turns of waiting requests are announced again");
                        self.wake_all();
                    }
                    let idle = turns.is_empty() && self.clock.mono().since(asked) < FLOOR;
                    turns.iter().for_each(|turn| self.wake(turn));
                    if idle {
                        self.clock.sleep(FLOOR).await;
                    }
                }
                // Turns are not announced to this user. The call took half of the time for which a lease is reserved.
                Err(error) if error.kind() == ErrorKind::Denied => {
                    self.wake_all();
                    self.clock.sleep(FLOOR).await;
                }
                Err(error) => {
                    if !std::mem::replace(&mut lost, true) {
                        tracing::warn!(error = error.chain(), "turns of waiting requests are not announced");
                    }
                    self.clock.sleep(self.pause()).await;
                }
            }
        }
    }

    async fn turns(&self, patience: Duration) -> Result<Vec<WaitingTurn>> {
        let call = self.store.wait_for_grants(&self.groups.node, patience);
        let call = within(&*self.clock, patience + self.patience, call);
        let turns = tokio::select! {
            biased;
            turns = call => turns,
            never = self.confirm() => never,
        };
        turns.unwrap_or_else(|| {
            Err(Error::unavailable(
                "the store did not return from a wait for turns",
                Outcome::Unchanged,
            ))
        })
    }

    /// Confirms the places of this process in a store that it does not sweep. It ticks often enough that its own silence is
    /// no gap.
    async fn confirm<T>(&self) -> T {
        let (None, Some(steps)) = (&self.sweeper, self.store.steps()) else {
            return pending().await;
        };
        loop {
            let mut next = NODE_SILENCE / 3;
            for group in self.groups.all() {
                let bound = Timeout::change(self.patience);
                let tick = steps.tick_of(&group, Some(&self.groups.node));
                // The wait for turns reports a store that is away.
                if let Ok(status) = bound.step(&*self.clock, &*self.store, tick).await {
                    let wake = status.next_wake.map_or(next, |at| at.since(status.as_of));
                    next = next.min(status.gap / 3).min(wake);
                }
            }
            self.clock.sleep(next.max(FLOOR)).await;
        }
    }

    /// The turn of a request has come, or a later request of the same tenure replaced it.
    fn wake(&self, turn: &WaitingTurn) {
        match self.waiting().requests.get(&turn.request) {
            Some(waiter) if turn.replaced => waiter.replaced.cancel(),
            Some(waiter) => waiter.turn.notify_one(),
            None => {}
        }
    }

    /// Announcements may have been lost.
    fn wake_all(&self) {
        self.waiting()
            .requests
            .values()
            .for_each(|waiter| waiter.turn.notify_one());
    }
}
