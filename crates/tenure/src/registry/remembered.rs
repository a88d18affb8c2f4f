//! The claims of a member, and their renewal after a rejoin.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Key, RegistryName, TenureId};
use tenure_core::registry::{ClaimMode, ClaimOutcome};
use tokio::sync::{Notify, RwLock};

use super::{PATIENCE, review};
use crate::lease::ActResult;
use crate::loops::{OwnedLoop, run_owned};
use crate::membership::Shared;

/// Keys per call when claiming again: large enough for throughput, small enough not to block other calls.
const PART: usize = 1_000;

/// A key that another member owns now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostClaim {
    /// The key.
    pub key: Key,
    /// Its owner now.
    pub to: TenureId,
}

/// The last claim of a key.
#[derive(Debug, Clone)]
struct RememberedClaim {
    under: TenureId,
    /// Whether the store may have lost it since.
    doubted: bool,
}

impl RememberedClaim {
    fn is_held_under(&self, tenure: &TenureId) -> bool {
        !self.doubted && self.under == *tenure
    }
}

/// The claims of one registry.
#[derive(Default)]
pub(crate) struct Remembered {
    keys: Mutex<BTreeMap<Key, RememberedClaim>>,
    lost: Mutex<BTreeMap<Key, TenureId>>,
    wakeup: Notify,
    /// User calls share it; claiming again takes it exclusively, so that it cannot reclaim a key that was just
    /// released.
    turn: RwLock<()>,
}

impl Remembered {
    pub(super) fn turn(&self) -> &RwLock<()> {
        &self.turn
    }

    /// Remembers claims. They are `doubted` if the store lost its latest writes meanwhile.
    pub(super) fn keep(&self, claimed: impl IntoIterator<Item = Key>, tenure: &TenureId, doubted: bool) {
        let mut keys = self.keys();
        for key in claimed {
            let now = RememberedClaim {
                under: tenure.clone(),
                doubted,
            };
            let kept = keys.entry(key).or_insert_with(|| now.clone());
            // Two claims may be answered out of order; the later tenure counts.
            if kept.under.term() <= tenure.term() {
                *kept = now;
            }
        }
    }

    /// Marks all as doubted: the store may have lost them.
    fn doubt(&self) {
        self.keys().values_mut().for_each(|kept| kept.doubted = true);
    }

    pub(super) fn forget(&self, key: &Key) {
        self.keys().remove(key);
    }

    pub(super) fn len(&self) -> usize {
        self.keys().len()
    }

    pub(super) async fn take_lost(&self) -> Vec<LostClaim> {
        loop {
            let news = self.wakeup.notified();
            let lost = std::mem::take(&mut *self.lost());
            if !lost.is_empty() {
                return lost.into_iter().map(|(key, to)| LostClaim { key, to }).collect();
            }
            news.await;
        }
    }

    /// The keys assumed to be held under `tenure`.
    pub(super) fn held_under(&self, tenure: &TenureId) -> BTreeSet<Key> {
        let keys = self.keys();
        let held = keys.iter().filter(|(_, kept)| kept.is_held_under(tenure));
        held.map(|(key, _)| key.clone()).collect()
    }

    /// Records that another member owns a key. Returns whether it counted as held under `tenure`.
    pub(super) fn lose(&self, tenure: &TenureId, key: &Key, to: TenureId) -> bool {
        let (mut keys, mut lost) = (self.keys(), self.lost());
        if !keys.get(key).is_some_and(|kept| kept.is_held_under(tenure)) {
            return false;
        }
        keys.remove(key);
        lost.insert(key.clone(), to);
        self.wakeup.notify_waiters();
        true
    }

    /// The next keys after `after` that are not known to be held under `tenure`.
    fn behind(&self, tenure: &TenureId, after: Option<&Key>) -> Vec<Key> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let keys = self.keys();
        let behind = keys
            .range::<Key, _>((from, Bound::Unbounded))
            .filter(|(_, kept)| !kept.is_held_under(tenure));
        behind.map(|(key, _)| key.clone()).take(PART).collect()
    }

    fn settle(&self, tenure: &TenureId, asked: Vec<Key>, outcomes: Vec<ClaimOutcome>, doubted: bool) -> u64 {
        let mut lost_now = 0;
        let (mut keys, mut lost) = (self.keys(), self.lost());
        for (key, outcome) in asked.into_iter().zip(outcomes) {
            if let ClaimOutcome::Held { by } = outcome {
                keys.remove(&key);
                lost.insert(key, by);
                lost_now += 1;
            } else {
                lost.remove(&key);
                let kept = RememberedClaim {
                    under: tenure.clone(),
                    doubted,
                };
                keys.insert(key, kept);
            }
        }
        if lost_now > 0 {
            self.wakeup.notify_waiters();
        }
        lost_now
    }

    fn keys(&self) -> MutexGuard<'_, BTreeMap<Key, RememberedClaim>> {
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

    pub(super) fn all_remembered(&self) -> Vec<(RegistryName, Arc<Remembered>)> {
        let registries = self.registries.lock().unwrap_or_else(PoisonError::into_inner);
        registries
            .iter()
            .map(|(name, remembered)| (name.clone(), Arc::clone(remembered)))
            .collect()
    }

    /// Puts all claims and connections in doubt after lost writes: they are claimed and attached again under the same
    /// tenure.
    pub(crate) fn doubt_claims(&self) {
        for (_, remembered) in self.all_remembered() {
            remembered.doubt();
        }
        self.connections.doubt();
        self.reassert();
    }

    /// Claims again: claims may be missing under the current tenure.
    pub(crate) fn reassert(&self) {
        self.behind.fetch_add(1, Ordering::AcqRel);
        self.reassert.notify_one();
    }

    /// Checks the answer to an act for lost writes. Returns whether the result of the act is in doubt.
    pub(crate) fn heed_answer(&self, answered: ActResult) -> bool {
        if answered == ActResult::TailLost {
            self.heed_lost_tail();
        }
        answered != ActResult::Fine
    }

    /// Handles writes lost by the store, as shown by a beat or an act.
    pub(crate) fn heed_lost_tail(&self) {
        let (group, tenure) = (&self.group, self.tenure());
        tracing::warn!(%group, %tenure, "the store lost its latest writes; reclaiming keys, attaching again, re-reading leases");
        self.doubt_claims();
    }

    /// Uses what an error shows beside its own call: the end of the tenure, or a step of the store's clock.
    pub(crate) fn heed(&self, error: &Error) {
        match error.kind() {
            ErrorKind::Ended(_) => self.poke.notify_one(),
            ErrorKind::TooLate => self.forget_store_time(),
            _ => {}
        }
    }
}

/// Claims remembered keys again after every rejoin and after lost writes, and periodically checks their owners. Ends
/// with the membership.
pub(crate) async fn reassert_claims(shared: Arc<Shared>) {
    let mut reconciler = ClaimReconciler {
        shared: &shared,
        done: 0,
        review_at: review::next(&shared),
    };
    run_owned(shared.owner(), &mut reconciler).await;
}

struct ClaimReconciler<'a> {
    shared: &'a Shared,
    /// Up to which count of [`Shared::behind`] everything was claimed again.
    done: u64,
    review_at: Mono,
}

impl OwnedLoop for ClaimReconciler<'_> {
    fn wakeup(&self) -> &Notify {
        &self.shared.reassert
    }

    fn due_in(&self) -> Option<Duration> {
        // Between the end of a tenure and the next join there is no tenure to act under.
        let is_behind = self.shared.behind.load(Ordering::Acquire) != self.done;
        match is_behind && self.shared.acting_tenure().is_ok() {
            true => Some(Duration::ZERO),
            false => Some(self.review_at.since(self.shared.now())),
        }
    }

    async fn turn(&mut self) -> Result<()> {
        let behind = self.shared.behind.load(Ordering::Acquire);
        if behind != self.done {
            assert_all(self.shared).await?;
            self.done = behind;
        }
        if self.review_at <= self.shared.now() {
            review::review_all(self.shared).await;
            self.review_at = review::next(self.shared);
        }
        Ok(())
    }

    fn failed(&self, error: &str) {
        let (group, tenure) = (&self.shared.group, self.shared.tenure());
        tracing::warn!(%group, %tenure, error, "claiming again failed; retrying");
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
            let act = shared.act(keys.len(), PATIENCE);
            let claim = store.claim(&shared.group, &name, &tenure, &keys, ClaimMode::IfAbsent, call);
            let claimed = match shared.context.act(claim).await {
                Ok(claimed) if claimed.outcomes.len() == keys.len() => claimed,
                Ok(_) => return Err(short_answer()),
                Err(error) => {
                    shared.heed(&error);
                    act.failed(&error, false);
                    return Err(error);
                }
            };
            let doubted = shared.heed_answer(act.answered(claimed.before, claimed.revision));
            if doubted {
                // The loss may include this key.
                shared.reassert();
            }
            again += keys.len() as u64;
            after = keys.last().cloned();
            lost += remembered.settle(&tenure, keys, claimed.outcomes, doubted);
        }
        if again > 0 {
            tracing::info!(group = %shared.group, registry = %name, %tenure, again, lost, "claimed again");
        }
    }
    Ok(())
}

pub(super) fn short_answer() -> Error {
    Error::new(
        ErrorKind::Internal,
        "the store returned fewer results than keys in the request",
    )
}
