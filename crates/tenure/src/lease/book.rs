//! What this process believes to hold under its present tenure: its grants, the number the store last told for all its
//! holdings, and whether there is doubt about them.
//!
//! A grant stays in the book from its answer until the store has confirmed that it was given up (or was found not to
//! have it), so that one process never asks for a lease that it may still be working under or giving up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::clock::Mono;
use tenure_core::error::Result;
use tenure_core::id::{Group, LeaseName, MemberId, TenureId};
use tenure_core::lease::{ReleaseOutcome, Token};
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
    pub(crate) tenure: TenureId,
    /// Cancelled once it is lost or given up; never undone.
    pub(crate) lost: CancellationToken,
}

impl Grant {
    pub(super) fn new(lease: LeaseName, token: Token, tenure: TenureId) -> Arc<Self> {
        Arc::new(Self {
            lease,
            token,
            tenure,
            lost: CancellationToken::new(),
        })
    }
}

/// Where to send what giving a lease up came to, when somebody waits for it.
pub(super) type Answer = oneshot::Sender<Result<ReleaseOutcome>>;

/// A grant that is on its way back to the store.
#[derive(Debug, Default)]
pub(super) struct GivingUp {
    /// For whom it is kept.
    pub(super) to: Option<MemberId>,
    pub(super) answer: Option<Answer>,
    /// An attempt whose outcome is unknown may have done it.
    pub(super) tried: bool,
}

/// Grants that have just been lost, and are still to be told of.
#[derive(Debug)]
#[must_use]
pub(crate) struct Lost(Vec<Arc<Grant>>);

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) grant: Arc<Grant>,
    /// `None` while a guard is there.
    pub(super) giving_up: Option<GivingUp>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Book {
    group: Group,
    /// Others act under our tenure, too: what nobody here knows of is theirs.
    pub(super) others_act: bool,
    pub(super) state: Mutex<State>,
    /// There is something to give up or to read back.
    pub(super) work: Notify,
    /// Something changed that a verdict, or who waits for a lease, depends on.
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Which tenure of this membership all this is about, counted.
    pub(super) epoch: u64,
    /// The highest number we were told for what the tenure holds.
    pub(super) told: Revision,
    /// The number at which we last saw that the store has all our leases.
    pub(super) verified: Revision,
    /// Acts under way that may change that number.
    pub(super) flying: u32,
    /// Nothing that we believe to hold can be relied on before it was read back.
    pub(super) doubted: bool,
    /// How often a doubt arose.
    pub(super) doubts: u64,
    /// What the store has for us is to be read, not before this: an act that nobody heard of may take effect until then.
    pub(super) read_at: Option<Mono>,
    /// It is to be read at once, whatever may happen later.
    pub(super) look: bool,
    /// It is being read.
    pub(super) reading: bool,
    /// A beat told this number, which the answer to an act under way is to explain before the next one.
    pub(super) unexplained: Option<Revision>,
    /// An act without leases was unheard: the next beat's number is the one.
    pub(super) accept_next: bool,
    /// Whether a lease was ever asked for under this tenure.
    pub(super) asked: bool,
    /// Asked for, and not answered yet.
    pub(super) asking: BTreeSet<LeaseName>,
    pub(super) entries: BTreeMap<LeaseName, Entry>,
}

impl Book {
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

    /// Whether others act under our tenure, too.
    pub(crate) fn share(&mut self, others_act: bool) {
        self.others_act = others_act;
    }

    /// Whether everything is to be doubted until it was read back.
    pub(crate) fn is_doubted(&self) -> bool {
        self.state().doubted
    }

    /// Wakes with every change.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub(super) fn changed(&self) {
        self.changes.send_replace(());
    }

    /// How many grants there are whose guard may act.
    pub(crate) fn held(&self) -> usize {
        let state = self.state();
        state
            .entries
            .values()
            .filter(|entry| !entry.grant.lost.is_cancelled())
            .count()
    }

    /// A new tenure begins: everything of the one before is lost for ever. Answers what was held until now, to be told.
    pub(crate) fn begin(&self) -> Lost {
        let lost = self.lose_all();
        let mut state = self.state();
        let (epoch, asking) = (state.epoch + 1, std::mem::take(&mut state.asking));
        *state = State {
            epoch,
            asked: !asking.is_empty(),
            asking,
            ..State::default()
        };
        lost
    }

    /// The tenure is lost: so is every grant. Answers those that were held until now, to be told.
    pub(crate) fn lose_all(&self) -> Lost {
        let state = self.state();
        let held = state.entries.values().filter(|entry| !entry.grant.lost.is_cancelled());
        let lost: Vec<Arc<Grant>> = held.map(|entry| Arc::clone(&entry.grant)).collect();
        lost.iter().for_each(|grant| grant.lost.cancel());
        Lost(lost)
    }

    /// Tells of what was lost. Not under a lock: whoever listens may ask for a verdict.
    pub(crate) fn tell(&self, lost: &Lost, reason: &str) {
        for grant in &lost.0 {
            journal::lost(&self.group, grant, reason);
        }
        if !lost.0.is_empty() {
            self.changed();
        }
    }

    /// A grant is lost. Told once.
    pub(super) fn lose(&self, grant: &Arc<Grant>, reason: &str) {
        let first = {
            let _state = self.state();
            let first = !grant.lost.is_cancelled();
            grant.lost.cancel();
            first
        };
        if first {
            self.tell(&Lost(vec![Arc::clone(grant)]), reason);
        }
    }

    /// Gives a grant back to the store, in the background: first it is lost here. `anyway` asks the store also when it
    /// was found not to have it for us.
    pub(super) fn give_up(&self, grant: &Arc<Grant>, giving_up: GivingUp, anyway: bool) {
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
                    let entry = Entry {
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

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
