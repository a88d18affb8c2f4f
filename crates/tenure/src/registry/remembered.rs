//! What a member has claimed, and how it is claimed again after a new join.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use tenure_core::clock::{jitter, within};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Key, RegistryName, TenureId};
use tenure_core::registry::{ClaimMode, ClaimOutcome};
use tokio::sync::{Notify, RwLock};

use super::PATIENCE;
use crate::membership::{Shared, in_time};

/// How many keys are claimed again in one call: enough to be quick, few enough to let others in between.
const PART: usize = 1_000;

/// A key that somebody else owned by the time it was claimed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostClaim {
    /// The key.
    pub key: Key,
    /// Its owner now.
    pub to: TenureId,
}

/// The claims of one registry.
#[derive(Default)]
pub(crate) struct Remembered {
    /// Each key with the tenure that it was last claimed under.
    keys: Mutex<BTreeMap<Key, TenureId>>,
    lost: Mutex<BTreeMap<Key, TenureId>>,
    news: Notify,
    /// Acts of the user share it; claiming again takes it alone, so that it cannot bring a key back that was just
    /// released.
    turn: RwLock<()>,
}

impl Remembered {
    pub(super) fn turn(&self) -> &RwLock<()> {
        &self.turn
    }

    pub(super) fn keep(&self, claims: impl IntoIterator<Item = (Key, TenureId)>) {
        let mut keys = self.keys();
        for (key, tenure) in claims {
            // Two claims may answer out of order; the later tenure is the true one.
            let kept = keys.entry(key).or_insert_with(|| tenure.clone());
            if kept.term() < tenure.term() {
                *kept = tenure;
            }
        }
    }

    pub(super) fn forget(&self, key: &Key) {
        self.keys().remove(key);
    }

    pub(super) fn len(&self) -> usize {
        self.keys().len()
    }

    pub(super) async fn take_lost(&self) -> Vec<LostClaim> {
        loop {
            let news = self.news.notified();
            let lost = std::mem::take(&mut *self.lost());
            if !lost.is_empty() {
                return lost.into_iter().map(|(key, to)| LostClaim { key, to }).collect();
            }
            news.await;
        }
    }

    /// The next keys after one that are not held under `tenure` yet.
    fn behind(&self, tenure: &TenureId, after: Option<&Key>) -> Vec<Key> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let keys = self.keys();
        let behind = keys
            .range::<Key, _>((from, Bound::Unbounded))
            .filter(|(_, under)| *under != tenure);
        behind.map(|(key, _)| key.clone()).take(PART).collect()
    }

    fn settle(&self, tenure: &TenureId, asked: Vec<Key>, outcomes: Vec<ClaimOutcome>) -> u64 {
        let mut lost_now = 0;
        let (mut keys, mut lost) = (self.keys(), self.lost());
        for (key, outcome) in asked.into_iter().zip(outcomes) {
            if let ClaimOutcome::Held { by } = outcome {
                keys.remove(&key);
                lost.insert(key, by);
                lost_now += 1;
            } else {
                lost.remove(&key);
                keys.insert(key, tenure.clone());
            }
        }
        if lost_now > 0 {
            self.news.notify_waiters();
        }
        lost_now
    }

    fn keys(&self) -> MutexGuard<'_, BTreeMap<Key, TenureId>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self) -> MutexGuard<'_, BTreeMap<Key, TenureId>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    pub(crate) fn remembered(&self, name: &RegistryName) -> Arc<Remembered> {
        let mut registries = self.registries.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(registries.entry(name.clone()).or_default())
    }

    fn all_remembered(&self) -> Vec<(RegistryName, Arc<Remembered>)> {
        let registries = self.registries.lock().unwrap_or_else(PoisonError::into_inner);
        registries
            .iter()
            .map(|(name, remembered)| (name.clone(), Arc::clone(remembered)))
            .collect()
    }

    /// An act that failed may tell more than itself: that the tenure is over, or that the store's clock stepped.
    pub(crate) fn heed(&self, error: &Error) {
        match error.kind() {
            ErrorKind::Ended(_) => self.poke.notify_one(),
            ErrorKind::TooLate => self.forget_store_time(),
            _ => {}
        }
    }
}

/// Claims again, after every new join, what is remembered. Ends with the membership.
pub(crate) async fn keep_asserted(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            biased;
            () = shared.stopped() => return,
            () = shared.reassert.notified() => {}
        }
        let done = tokio::select! {
            biased;
            () = shared.stopped() => return,
            done = AssertUnwindSafe(assert_all(&shared)).catch_unwind() => done,
        };
        let error = match done {
            Ok(Ok(())) => continue,
            // The next join starts it afresh.
            Ok(Err(error)) if matches!(error.kind(), ErrorKind::Ended(_)) => {
                shared.heed(&error);
                continue;
            }
            Ok(Err(error)) => error.chain(),
            Err(_) => "it panicked".to_owned(),
        };
        tracing::warn!(group = %shared.group, tenure = %shared.tenure(), error, "claiming again failed; trying again");
        let clock = &shared.context.clock;
        clock.sleep(jitter(&**clock, shared.pace(), 25)).await;
        shared.reassert.notify_one();
    }
}

async fn assert_all(shared: &Shared) -> Result<()> {
    let tenure = shared.acting_tenure()?;
    for (name, remembered) in shared.all_remembered() {
        let (mut again, mut lost, mut after) = (0, 0, None);
        loop {
            let _turn = remembered.turn.write().await;
            let keys = remembered.behind(&tenure, after.as_ref());
            if keys.is_empty() {
                break;
            }
            let (store, call) = (&shared.context.store, shared.call(PATIENCE));
            let claim = store.claim(&shared.group, &name, &tenure, &keys, ClaimMode::IfAbsent, call);
            let claimed = in_time(within(&*shared.context.clock, PATIENCE, claim).await, PATIENCE)
                .inspect_err(|error| shared.heed(error))?;
            let outcomes = claimed.outcomes;
            if outcomes.len() != keys.len() {
                return Err(Error::new(
                    ErrorKind::Internal,
                    "the store answered fewer keys than it was asked",
                ));
            }
            again += keys.len() as u64;
            after = keys.last().cloned();
            lost += remembered.settle(&tenure, keys, outcomes);
        }
        if again > 0 {
            tracing::info!(group = %shared.group, registry = %name, %tenure, again, lost, "claimed again");
        }
    }
    Ok(())
}
