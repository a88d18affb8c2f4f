//! Releasing leases: locally first, then at the store.

use std::sync::Arc;

use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::{ReleaseLeases, ReleaseOutcome, Token};
use tenure_core::membership::EndReason;
use tenure_core::timeout::Timeout;
use tokio::sync::oneshot;

use super::guard::LeaseGuard;
use super::table::{Grant, LeaseTable, PendingRelease};
use super::{PART, journal, short_answer};
use crate::membership::Shared;
use crate::registry::PATIENCE;

/// Releases leases and waits for the outcome.
pub(super) async fn give_up(
    shared: &Arc<Shared>,
    guards: Vec<LeaseGuard>,
    to: Option<&MemberId>,
) -> Result<Vec<ReleaseOutcome>> {
    let mut answers = Vec::with_capacity(guards.len());
    for guard in &guards {
        let (answer, answered) = oneshot::channel();
        let giving_up = PendingRelease {
            to: to.cloned(),
            answer: Some(answer),
            tried: false,
        };
        if shared.tenure() == *guard.tenure() {
            shared.leases.give_up(guard.grant(), giving_up, true);
        }
        answers.push(answered);
    }
    let over = || match shared.acting_tenure() {
        Ok(tenure) => Err(Error::ended(tenure, EndReason::Left)),
        Err(error) => Err(error),
    };
    let waiting = async {
        let mut outcomes = Vec::with_capacity(answers.len());
        for (answered, guard) in answers.into_iter().zip(&guards) {
            // The sender is dropped only when the tenure is no longer current.
            let ended = || Err(Error::ended(guard.tenure(), EndReason::Unknown));
            outcomes.push(answered.await.unwrap_or_else(|_| ended())?);
        }
        Ok(outcomes)
    };
    let bound = Timeout::change(PATIENCE * 2);
    tokio::select! {
        biased;
        done = bound.call(&*shared.context.clock, "the store", waiting) => done,
        () = shared.stopped() => over(),
    }
}

/// Sends one batch of pending releases. Returns whether more are pending.
pub(super) async fn round(shared: &Shared) -> Result<bool> {
    let table = &shared.leases;
    let tenure = shared.acting_tenure()?;
    let Some((to, grants)) = table.to_give_up(PART) else {
        return Ok(false);
    };
    let leases: Vec<(LeaseName, Token)> = grants.iter().map(|grant| (grant.lease.clone(), grant.token)).collect();
    let act = shared.act(leases.len(), PATIENCE);
    let call = shared.call(PATIENCE);
    let store = &shared.context.store;
    let release = ReleaseLeases {
        tenure: tenure.clone(),
        leases,
        to,
        seen: table.sent().known,
    };
    let release = store.release_with(&shared.group, release, call);
    let given = shared.context.act(release).await;
    match given {
        Ok(given) if given.outcomes.len() == grants.len() => {
            for (grant, outcome) in grants.iter().zip(given.outcomes) {
                table.given_up(grant, &tenure, outcome);
            }
            shared.heed_answer(act.answered(given.before, given.revision));
            table.changed();
            Ok(true)
        }
        Ok(_) => Err(short_answer()),
        Err(error) => {
            shared.heed(&error);
            if error.outcome() == Outcome::Unknown || grants.len() > 1 {
                table.tried(&grants);
            }
            if matches!(
                error.kind(),
                ErrorKind::Unsupported | ErrorKind::Invalid | ErrorKind::Denied
            ) {
                // A retry is useless; the end of the tenure frees them.
                table.cannot_give_up(&grants, &error);
            }
            act.failed(&error, false);
            Err(error)
        }
    }
}

impl LeaseTable {
    /// The next grants to release, all for the same successor.
    fn to_give_up(&self, most: usize) -> Option<(Option<MemberId>, Vec<Arc<Grant>>)> {
        let state = self.state();
        let mut all = state
            .entries
            .values()
            .filter_map(|entry| entry.giving_up.as_ref().map(|giving_up| (entry, giving_up)));
        let (first, giving_up) = all.next()?;
        let to = giving_up.to.clone();
        let mut grants = vec![Arc::clone(&first.grant)];
        let others = all.filter(|(_, giving_up)| giving_up.to == to);
        grants.extend(others.take(most - 1).map(|(entry, _)| Arc::clone(&entry.grant)));
        Some((to, grants))
    }

    /// Marks these as attempted: a call with an unknown outcome may have released them.
    fn tried(&self, grants: &[Arc<Grant>]) {
        let mut state = self.state();
        for grant in grants {
            if let Some(giving_up) = state
                .entries
                .get_mut(&grant.lease)
                .and_then(|entry| entry.giving_up.as_mut())
            {
                giving_up.tried = true;
            }
        }
    }

    /// Handles the answer of the store for one grant.
    fn given_up(&self, grant: &Arc<Grant>, tenure: &TenureId, outcome: ReleaseOutcome) {
        let Some(giving_up) = self.take(grant) else { return };
        let outcome = match outcome {
            // An earlier attempt released it: while our tenure lives, no other member could hold it otherwise.
            ReleaseOutcome::NotHolder { by } if giving_up.tried && by != *tenure => gone(&giving_up),
            ReleaseOutcome::Released if giving_up.tried => gone(&giving_up),
            outcome => outcome,
        };
        match &outcome {
            ReleaseOutcome::Released => journal::given_up(self.group(), grant, None),
            ReleaseOutcome::Reserved => journal::given_up(self.group(), grant, giving_up.to.as_ref()),
            ReleaseOutcome::NotHolder { .. } => {}
        }
        if let Some(answer) = giving_up.answer {
            // This fails only when the receiver is gone.
            drop(answer.send(Ok(outcome)));
        }
    }

    fn cannot_give_up(&self, grants: &[Arc<Grant>], error: &Error) {
        for grant in grants {
            if let Some(answer) = self.take(grant).and_then(|giving_up| giving_up.answer) {
                drop(answer.send(Err(crate::error_copy::copy_of(error))));
            }
        }
    }

    /// Removes a pending release from the table.
    pub(super) fn take(&self, grant: &Arc<Grant>) -> Option<PendingRelease> {
        let mut state = self.state();
        let entry = state.entries.get(&grant.lease)?;
        if !Arc::ptr_eq(&entry.grant, grant) {
            return None;
        }
        state.entries.remove(&grant.lease)?.giving_up
    }
}

/// The outcome of an attempt whose reply was lost.
fn gone(giving_up: &PendingRelease) -> ReleaseOutcome {
    match giving_up.to {
        Some(_) => ReleaseOutcome::Reserved,
        None => ReleaseOutcome::Released,
    }
}
