//! Coalesces single beats, and other small calls that are cheaper together, into batches.
//!
//! Measured: a beat sent alone costs the store several times as much as a beat in a batch of 64 or more. The batcher
//! queues the beats of many callers per group while a batch is in flight. An idle batcher sends immediately, so it adds
//! no latency where there is nothing to gain. A busy one sends after at most [`BatchSettings::linger`], or as soon as
//! [`BatchSettings::max_batch`] beats wait. In front of a store that has answered without waiting, an embedded one,
//! every caller sends its own beat.
//!
//! The answer to a beat always comes from a batch that was sent *after* the beat was submitted. An earlier batch would
//! confirm an earlier moment, and the caller counts its validity from the moment of the call.

mod batcher;
mod in_flight;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::{Clock, Mono};
use tenure_core::error::Result;
use tenure_core::id::Group;
use tenure_core::membership::{Beat, BeatReply};
use tenure_core::store::Store;
use tenure_core::time::StoreTime;
use tokio::runtime::Handle;

pub(crate) use self::batcher::{BatchSender, Batcher};
use crate::meters;

/// Limits of batching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSettings {
    /// The most beats in a batch. A larger batch saves a little and occupies the store longer.
    pub max_batch: usize,
    /// The longest that a beat waits for others while earlier batches are in flight.
    pub linger: Duration,
    /// The most batches of one group in flight. More hide latency; with only one, a slow batch delays all.
    pub in_flight: usize,
    /// The most queued beats over all groups. Beyond it, a beat fails immediately instead of expiring in the queue.
    pub queue: usize,
    /// A beat that has been queued this long is not sent: it fails, with nothing changed. A batch in flight has no
    /// time-out here: the store has one, or the callers have.
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

/// The outcome of a beat, and the times of the batch that carried it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeatOutcome {
    /// The reply for this beat.
    pub reply: BeatReply,
    /// The store's time of the reply.
    pub as_of: StoreTime,
    /// The local time at which the batch was sent.
    pub asked: Mono,
    /// The local time at which the reply arrived.
    pub arrived: Mono,
}

/// Coalesces beats. Clones share state.
#[derive(Clone)]
pub struct BeatBatcher {
    batcher: Batcher<BeatSender>,
}

impl fmt::Debug for BeatBatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BeatBatcher")
            .field("settings", self.batcher.settings())
            .finish_non_exhaustive()
    }
}

impl BeatBatcher {
    /// A batcher in front of `store`. Batches that no caller sends itself are sent from `runtime`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, runtime: Handle, settings: BatchSettings) -> Self {
        Self {
            batcher: Batcher::new(
                BeatSender {
                    store,
                    clock: Arc::clone(&clock),
                },
                clock,
                runtime,
                settings,
            ),
        }
    }

    /// Sends one beat, alone or in a batch. O(1) calls of the store per batch.
    ///
    /// # Errors
    /// Those of [`MembershipStore::beat`](tenure_core::membership::MembershipStore::beat); `Unavailable` without
    /// waiting, with nothing changed, when the queue is full.
    pub async fn beat(&self, group: &Group, beat: Beat) -> Result<BeatOutcome> {
        self.batcher.submit(group, beat).await
    }
}

/// Sends batches of beats to a store.
struct BeatSender {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl BatchSender for BeatSender {
    type Item = Beat;
    type Reply = BeatOutcome;
    const WHAT: &'static str = "beats";

    async fn send(&self, group: &Group, beats: &[Beat]) -> Result<Vec<BeatOutcome>> {
        // The clock is read once per batch: reading it costs more than a beat's share of the batch.
        let asked = self.clock.mono();
        let beaten = self.store.beat(group, beats).await?;
        let (as_of, arrived) = (beaten.as_of, self.clock.mono());
        let outcome = |reply| BeatOutcome {
            reply,
            as_of,
            asked,
            arrived,
        };
        Ok(beaten.replies.into_iter().map(outcome).collect())
    }

    fn sent(&self, done: &Result<Vec<BeatOutcome>>, beats: usize) {
        match done {
            Ok(beaten) => meters::beaten(beaten.iter().map(|outcome| outcome.reply)),
            Err(_) => meters::beats("failed", beats as u64),
        }
    }
}

#[cfg(test)]
mod tests;
