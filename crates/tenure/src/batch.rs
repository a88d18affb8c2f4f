//! Coalescing single beats into batches (and what else is asked one by one and cheaper together).
//!
//! Measured: a beat that travels alone costs the store several times what it costs in a batch of 64 or more. So the beats
//! of many callers are gathered, per group, while a batch is under way: an idle batcher sends at once (no latency is
//! added where there is nothing to gain), a busy one gathers for at most [`BatchSettings::linger`] or until
//! [`BatchSettings::max_batch`] are there.
//!
//! A beat is only ever answered from a batch that was sent *after* it was asked for: an older answer would confirm an
//! older moment, and a caller counts its trust from when it asked.

mod flight;
mod gatherer;

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

pub(crate) use self::gatherer::{Gathered, Gatherer};
use crate::meters;

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
    /// A beat that has waited this long for its turn is not sent: it fails, with nothing changed. A batch that was sent has no
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

/// What a beat came to, and the times of the batch that it was in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beated {
    /// The answer.
    pub reply: BeatReply,
    /// The store's time.
    pub as_of: StoreTime,
    /// The local time at which the batch was sent.
    pub asked: Mono,
    /// The local time at which it was answered.
    pub arrived: Mono,
}

/// Gathers beats. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct BeatBatcher {
    gatherer: Gatherer<Beats>,
}

impl fmt::Debug for BeatBatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BeatBatcher")
            .field("settings", self.gatherer.settings())
            .finish_non_exhaustive()
    }
}

impl BeatBatcher {
    /// A batcher in front of a store. Batches that are not sent by a caller itself are sent from `runtime`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, runtime: Handle, settings: BatchSettings) -> Self {
        Self {
            gatherer: Gatherer::new(
                Beats {
                    store,
                    clock: Arc::clone(&clock),
                },
                clock,
                runtime,
                settings,
            ),
        }
    }

    /// Sends one beat, alone or in company. O(1) calls of the store per batch.
    ///
    /// # Errors
    /// Those of [`MembershipStore::beat`](tenure_core::membership::MembershipStore::beat); `Unavailable` at once, with
    /// nothing changed, when too many beats are waiting already.
    pub async fn beat(&self, group: &Group, beat: Beat) -> Result<Beated> {
        self.gatherer.ask(group, beat).await
    }
}

/// Beats, on their way to a store.
struct Beats {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl Gathered for Beats {
    type Item = Beat;
    type Answer = Beated;
    const WHAT: &'static str = "beats";

    async fn send(&self, group: &Group, beats: &[Beat]) -> Result<Vec<Beated>> {
        // Once for a batch: the clock costs a beat more than its place in the batch does.
        let asked = self.clock.mono();
        let beaten = self.store.beat(group, beats).await?;
        let (as_of, arrived) = (beaten.as_of, self.clock.mono());
        let beated = |reply| Beated {
            reply,
            as_of,
            asked,
            arrived,
        };
        Ok(beaten.replies.into_iter().map(beated).collect())
    }

    fn sent(&self, done: &Result<Vec<Beated>>, beats: usize) {
        let Ok(beaten) = done else {
            return meters::beats("failed", beats as u64);
        };
        let (mut renewed, mut ended, mut unknown) = (0, 0, 0);
        for beated in beaten {
            match beated.reply {
                BeatReply::Renewed { .. } => renewed += 1,
                BeatReply::Ended(_) => ended += 1,
                BeatReply::Unknown => unknown += 1,
            }
        }
        for (outcome, count) in [("renewed", renewed), ("ended", ended), ("unknown", unknown)] {
            if count > 0 {
                meters::beats(outcome, count);
            }
        }
    }
}

#[cfg(test)]
mod tests;
