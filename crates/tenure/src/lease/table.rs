//! The local lease table of a membership: the grants under its current tenure, the revision of its holdings, and
//! whether they are in doubt.
//!
//! A grant stays in the table until the store has confirmed its release (or does not have it). One process thus never
//! acquires a lease that it may still be working under or releasing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::clock::Mono;
use tenure_core::error::Result;
use tenure_core::id::{Group, LeaseName, MemberId, TenureId};
use tenure_core::lease::{Place, ReleaseOutcome, Token};
use tenure_core::membership::Revision;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::journal;
use crate::meters;

/// One grant of a lease.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) lease: LeaseName,
    pub(crate) token: Token,
    pub(crate) place: Place,
    pub(crate) generation: Token,
    pub(crate) tenure: TenureId,
    /// Cancelled once the grant is lost or released; final.
    pub(crate) lost: CancellationToken,
}

impl Grant {
    pub(super) fn new(
        lease: LeaseName,
        token: Token,
        (place, generation): (Place, Token),
        tenure: TenureId,
    ) -> Arc<Self> {
        Arc::new(Self {
            lease,
            token,
            place,
            generation,
            tenure,
            lost: CancellationToken::new(),
        })
    }
}

/// Where to send the outcome of a release.
pub(super) type ReleaseReply = oneshot::Sender<Result<ReleaseOutcome>>;

/// A grant that is being released.
#[derive(Debug, Default)]
pub(super) struct PendingRelease {
    /// The successor it is reserved for.
    pub(super) to: Option<MemberId>,
    pub(super) answer: Option<ReleaseReply>,
    /// An attempt with an unknown outcome may have released it.
    pub(super) tried: bool,
}

/// Grants that were just lost and are not logged yet.
#[derive(Debug)]
#[must_use]
pub(crate) struct LostGrants(Vec<Arc<Grant>>);

#[derive(Debug)]
pub(super) struct LeaseEntry {
    pub(super) grant: Arc<Grant>,
    /// `None` while a guard exists.
    pub(super) giving_up: Option<PendingRelease>,
}

/// The table; see the module.
#[derive(Debug)]
pub(crate) struct LeaseTable {
    group: Group,
    /// Other processes act under our tenure; leases unknown here are theirs.
    pub(super) others_act: bool,
    pub(super) state: Mutex<TableState>,
    /// Wakes the reconciler: a release or a re-read is pending.
    pub(super) work: Notify,
    /// Notifies waiters of changes that affect a verdict or a pending acquire.
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
pub(super) struct TableState {
    /// Counts the tenures of this membership.
    pub(super) epoch: u64,
    /// The highest known revision of the tenure's holdings.
    pub(super) known: Revision,
    /// The revision at which the store last had all our leases.
    pub(super) verified: Revision,
    /// The revision up to which every change is known: from a read, or from answers without a gap before them. It is below
    /// `known` while an answer of our own may hide a change by others, such as the release of a lease by an operator.
    pub(super) explained: Revision,
    /// Answers that begin above it: the revision before each act, and after it.
    pub(super) ahead: BTreeMap<Revision, Revision>,
    /// A change by others may hide that the store lost its latest writes.
    pub(super) hidden: bool,
    /// While a revision is not explained, beats do not extend the validity of leases beyond this: the store frees a lease
    /// that an operator released at the deadline that it had then, also if its holder never learns of it.
    pub(super) cap: Option<Mono>,
    /// Acts in flight that may change the revision.
    pub(super) in_flight: u32,
    /// Whether our leases are in doubt until they are re-read.
    pub(super) doubted: bool,
    /// How often they were put in doubt.
    pub(super) doubts: u64,
    /// Earliest time of the next re-read: an act without an answer may take effect until then.
    pub(super) read_at: Option<Mono>,
    /// A re-read is due now, independent of `read_at`.
    pub(super) look: bool,
    /// A re-read is in progress.
    pub(super) reading: bool,
    /// A revision from a beat that the answer to an act in flight should explain before the next beat.
    pub(super) unexplained: Option<Revision>,
    /// An act without leases got no answer: accept the revision of the next beat.
    pub(super) accept_next: bool,
    /// Whether a lease was ever acquired under this tenure.
    pub(super) asked: bool,
    /// Leases being acquired.
    pub(super) asking: BTreeSet<LeaseName>,
    pub(super) entries: BTreeMap<LeaseName, LeaseEntry>,
}

impl LeaseTable {
    pub(crate) fn new(group: Group) -> Self {
        meters::begin_leases(&group);
        Self {
            group,
            others_act: false,
            state: Mutex::default(),
            work: Notify::new(),
            changes: watch::Sender::new(()),
        }
    }

    /// Sets whether other processes act under our tenure.
    pub(crate) fn share(&mut self, others_act: bool) {
        self.others_act = others_act;
    }

    /// Whether the leases are in doubt until they are re-read.
    pub(crate) fn is_doubted(&self) -> bool {
        self.state().doubted
    }

    /// The end of the validity of leases, if it is earlier than that of the tenure.
    pub(crate) fn cap(&self) -> Option<Mono> {
        self.state().cap
    }

    /// Notifies of every change.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub(super) fn changed(&self) {
        self.changes.send_replace(());
    }

    /// Number of grants whose guard may act.
    pub(crate) fn held(&self) -> usize {
        let state = self.state();
        state
            .entries
            .values()
            .filter(|entry| !entry.grant.lost.is_cancelled())
            .count()
    }

    /// Starts a new tenure: all grants of the previous one are lost. Returns the held ones, for logging.
    pub(crate) fn begin(&self) -> LostGrants {
        let lost = self.lose_all();
        let mut state = self.state();
        let (epoch, asking) = (state.epoch + 1, std::mem::take(&mut state.asking));
        *state = TableState {
            epoch,
            asked: !asking.is_empty(),
            asking,
            ..TableState::default()
        };
        lost
    }

    /// Loses all grants. Returns those that were held, for logging.
    pub(crate) fn lose_all(&self) -> LostGrants {
        let state = self.state();
        let held = state.entries.values().filter(|entry| !entry.grant.lost.is_cancelled());
        let lost: Vec<Arc<Grant>> = held.map(|entry| Arc::clone(&entry.grant)).collect();
        lost.iter().for_each(|grant| grant.lost.cancel());
        LostGrants(lost)
    }

    /// Logs lost grants. Call it without a lock: a log subscriber may ask for a verdict.
    pub(crate) fn log_lost(&self, lost: &LostGrants, reason: &str) {
        for grant in &lost.0 {
            journal::lost(&self.group, grant, reason);
        }
        if !lost.0.is_empty() {
            self.changed();
        }
    }

    /// Loses one grant; logged once.
    pub(super) fn lose(&self, grant: &Arc<Grant>, reason: &str) {
        let first = {
            let _state = self.state();
            let first = !grant.lost.is_cancelled();
            grant.lost.cancel();
            first
        };
        if first {
            self.log_lost(&LostGrants(vec![Arc::clone(grant)]), reason);
        }
    }

    /// Releases a grant in the background; it is lost locally first. `anyway` calls the store even if it did not have
    /// the grant.
    pub(super) fn give_up(&self, grant: &Arc<Grant>, giving_up: PendingRelease, anyway: bool) {
        {
            let mut state = self.state();
            if !grant.lost.is_cancelled() {
                grant.lost.cancel();
                journal::no_longer_held(&self.group);
            }
            match state.entries.get_mut(&grant.lease) {
                Some(entry) if Arc::ptr_eq(&entry.grant, grant) && entry.giving_up.is_none() => {
                    entry.giving_up = Some(giving_up);
                }
                None if anyway => {
                    let entry = LeaseEntry {
                        grant: Arc::clone(grant),
                        giving_up: Some(giving_up),
                    };
                    state.entries.insert(grant.lease.clone(), entry);
                }
                _ => return,
            }
        }
        self.changed();
        self.work.notify_one();
    }

    pub(super) fn group(&self) -> &Group {
        &self.group
    }

    pub(super) fn state(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
