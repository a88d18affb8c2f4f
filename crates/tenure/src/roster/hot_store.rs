//! Whether the hot store of this process is that of the ledger. If not, the process serves its rosters as if the hot store
//! did not answer: a second hot store would take everyone offline who beats at the first.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure_core::clock::{Clock, Mono};
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::ledger::hot_store::CONFIRM_EVERY;
use tenure_core::ledger::{HotStore, HotStoreClaim, HotStoreOutcome, RecordedHotStore};
use tenure_core::store::Store;
use tenure_core::timeout::Timeout;

use super::service::Inner;
use crate::meters;

/// The hot store of a process beside that of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotStoreStatus {
    /// That of this process.
    pub own: HotStore,
    /// That of the ledger; `None` if it has recorded none, or only one process can use it.
    pub recorded: Option<RecordedHotStore>,
}

impl HotStoreStatus {
    /// Whether this process may use its hot store.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        let recorded = self.recorded.as_ref();
        recorded.is_none_or(|recorded| recorded.hot_store.id == self.own.id)
    }
}

/// The knowledge of this process about its hot store.
#[derive(Debug)]
pub(crate) struct HotStoreWatch {
    /// Identifies the data of a store that keeps no identity: it lasts as long as this process.
    drawn: String,
    facts: Mutex<Facts>,
}

#[derive(Debug, Default)]
struct Facts {
    admission: Admission,
    /// The id with which the ledger last admitted this process.
    was: Option<String>,
    claimed_at: Option<Mono>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Admission {
    /// The ledger was not asked since the hot store failed. The hot store is used, and the ledger does not follow it.
    #[default]
    Unknown,
    Admitted(String),
    /// The ledger has another one, for this reason.
    Refused(String),
}

impl HotStoreWatch {
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        Self {
            drawn: format!("{:016x}", clock.entropy()),
            facts: Mutex::default(),
        }
    }

    /// Whether the ledger may follow the hot store.
    pub(crate) fn is_admitted(&self) -> bool {
        matches!(self.facts().admission, Admission::Admitted(_))
    }

    /// Why the hot store is not used.
    pub(crate) fn refusal(&self) -> Option<String> {
        match &self.facts().admission {
            Admission::Refused(why) => Some(why.clone()),
            _ => None,
        }
    }

    /// Rejects the use of a hot store that is not the ledger's.
    ///
    /// # Errors
    /// `Unavailable`, with both.
    pub(crate) fn check(&self) -> Result<()> {
        match self.refusal() {
            Some(why) => Err(Error::unavailable(why, Outcome::Unchanged)),
            None => Ok(()),
        }
    }

    /// The hot store's identity.
    ///
    /// # Errors
    /// Those of the store.
    async fn own(&self, store: &dyn Store) -> Result<HotStore> {
        let id = store.identity().await?;
        Ok(HotStore {
            id: id.unwrap_or_else(|| self.drawn.clone()),
            place: store.place(),
        })
    }

    /// The claim that is due for a hot store; `None` if the last one still counts.
    fn due(&self, own: HotStore, now: Mono) -> Option<HotStoreClaim> {
        let facts = self.facts();
        let is_kept = facts.claimed_at.is_some_and(|at| now.since(at) < CONFIRM_EVERY);
        if is_kept && facts.admission == Admission::Admitted(own.id.clone()) {
            return None;
        }
        Some(HotStoreClaim {
            was: facts.was.clone(),
            own,
            replaces: false,
        })
    }

    fn lost_sight(&self) {
        let mut facts = self.facts();
        if matches!(facts.admission, Admission::Admitted(_)) {
            facts.admission = Admission::Unknown;
        }
    }

    fn answered(&self, own: &HotStore, outcome: &HotStoreOutcome, ledger: &str, now: Mono) {
        let mut facts = self.facts();
        facts.claimed_at = Some(now);
        let before = std::mem::take(&mut facts.admission);
        facts.admission = match outcome {
            HotStoreOutcome::Admitted => {
                if matches!(before, Admission::Refused(_)) {
                    tracing::info!(hot_store = %own, ledger, "the ledger accepts the hot store of this process");
                }
                if facts.was.as_ref().is_some_and(|was| *was != own.id) {
                    tracing::warn!(hot_store = %own, ledger, "the hot store has lost its data; the ledger keeps it");
                }
                facts.was = Some(own.id.clone());
                Admission::Admitted(own.id.clone())
            }
            HotStoreOutcome::Refused(recorded) => {
                let why = refusal(own, recorded, ledger);
                if !matches!(before, Admission::Refused(_)) {
                    tracing::error!("{why}");
                }
                Admission::Refused(why)
            }
        };
        meters::roster_hot_store_refused(matches!(facts.admission, Admission::Refused(_)));
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both hot stores, and what to do.
fn refusal(own: &HotStore, recorded: &RecordedHotStore, ledger: &str) -> String {
    let RecordedHotStore {
        hot_store,
        confirmed_ago,
    } = recorded;
    format!(
        "the ledger {ledger} belongs to the hot store {hot_store}, confirmed {} s ago; this process uses {own} and serves its \
         rosters from the ledger; use the same store, or, if the other one is given up, run `tenure roster hot-store --replace` \
         with this process as the store",
        confirmed_ago.as_secs()
    )
}

impl Inner {
    /// Asks the ledger whether the hot store is the right one, if that is due.
    pub(super) async fn claim_hot_store(&self) -> Result<()> {
        let known = self.known();
        if !known.is_empty()
            && self.hot_store().refusal().is_none()
            && known.iter().all(|state| state.mirror().is_away())
        {
            self.hot_store().lost_sight();
            return Ok(());
        }
        let own = match self.own_hot_store().await {
            Ok(own) => own,
            Err(error) => {
                tracing::debug!(error = error.chain(), "the identity of the hot store could not be read");
                self.hot_store().lost_sight();
                return Ok(());
            }
        };
        match self.hot_store().due(own, self.clock().mono()) {
            Some(claim) => self.claim(&claim).await.map(drop),
            None => Ok(()),
        }
    }

    async fn claim(&self, claim: &HotStoreClaim) -> Result<HotStoreOutcome> {
        let outcome = self.in_time(self.ledger().claim_hot_store(claim)).await?;
        let now = self.clock().mono();
        self.hot_store()
            .answered(&claim.own, &outcome, &self.ledger().place(), now);
        Ok(outcome)
    }

    async fn own_hot_store(&self) -> Result<HotStore> {
        let bound = Timeout::read(self.settings().mirror_timeout);
        let own = self.hot_store().own(self.store());
        bound.call(self.clock(), "the hot store", own).await
    }

    /// Both hot stores.
    ///
    /// # Errors
    /// Those of the store and the ledger.
    pub(super) async fn hot_store_status(&self) -> Result<HotStoreStatus> {
        Ok(HotStoreStatus {
            own: self.own_hot_store().await?,
            recorded: self.in_time(self.ledger().hot_store()).await?,
        })
    }

    /// Makes the hot store of this process that of the ledger.
    ///
    /// # Errors
    /// Those of the store and the ledger.
    pub(super) async fn replace_hot_store(&self) -> Result<HotStoreStatus> {
        let claim = HotStoreClaim {
            own: self.own_hot_store().await?,
            was: None,
            replaces: true,
        };
        self.claim(&claim).await?;
        self.wake();
        self.hot_store_status().await
    }
}
