//! Leases: tokens rise, a grant waits for the last deadline of a holder that may still work, a release names its token.

use tenure::{Event, EventKind, LeaseName, TenureId};
use tenure_core::call::{Op, Reply};
use tenure_core::lease::{Acquire, AcquireOutcome, LeaseHolder, ReleaseLeases, ReleaseOutcome, Withdraw, Withdrawn};

use super::shadow::Ended;
use super::{Checked, Checker, Revoked, must};
use crate::program::places_of;
use crate::step::Step;

impl Checker {
    pub(super) fn lease_granted(&mut self, step: &Step, event: &Event) -> Checked {
        let (Some(tenure), Some(lease), Some(token)) = (&event.tenure, &event.lease, event.token) else {
            return must(false, "a grant names tenure, lease and token", || format!("{event:?}"));
        };
        must(token.get() > self.highest_token, "tokens rise for ever", || {
            format!("{lease}: {token} after {}", self.highest_token)
        })?;
        self.highest_token = token.get();
        must(
            self.is_settled(step),
            "nothing is granted inside a grace period",
            || format!("{lease} to {tenure} at {}", step.now),
        )?;
        let place = event.place.unwrap_or_default();
        must(
            place.get() < places_of(lease),
            "a lease has no more holders than places",
            || format!("{lease}: place {place} for {tenure}"),
        )?;
        let other = self
            .shadow
            .places(lease)
            .find(|(at, held)| *at != place && held.0 == *tenure);
        must(other.is_none(), "a tenure has one place of a lease", || {
            format!("{lease}: {place} and {other:?} for {tenure}")
        })?;
        let before = self
            .shadow
            .leases
            .insert((lease.clone(), place), (tenure.clone(), token));
        let Some((holder, _)) = before else {
            return Ok(());
        };
        must(
            self.is_over(&holder, step),
            "a lease is granted only when its holder can no longer be at work",
            || format!("{lease} to {tenure} from {holder}"),
        )
    }

    /// An operator has released a grant, which stays taken for now.
    pub(super) fn lease_revoked(&mut self, step: &Step, event: &Event) {
        let current = event.tenure.as_ref().and_then(|tenure| self.shadow.current(tenure));
        if let (Some(current), Some(token)) = (current, event.token) {
            let ttl = current.ttl;
            let (began, jumped) = if self.shadow.resumed_at > current.renewed_at {
                (self.shadow.resumed_at, self.shadow.jumped_at_resume)
            } else {
                (current.renewed_at, current.jumped)
            };
            let began = began.min(step.now);
            self.shadow.revoked.insert(token, Revoked { ttl, began, jumped });
        }
    }

    /// Whether the store is outside a grace period.
    fn is_settled(&self, step: &Step) -> bool {
        self.shadow.unsettled_until.is_none_or(|until| step.now >= until)
    }

    /// Whether, by the store's clock, no process can work under this tenure any more.
    fn is_over(&self, tenure: &TenureId, step: &Step) -> bool {
        if self.shadow.current(tenure).is_some() {
            return false;
        }
        match self.shadow.ended.get(tenure) {
            Some(ended) if ended.reason.may_still_run() => {
                let fell_back = step.now < ended.at;
                fell_back || step.now >= ended.end
            }
            _ => true,
        }
    }

    /// [`Self::is_over`], also if the store restarts the waits for all holders when it resumes or loses data.
    fn is_surely_over(&self, tenure: &TenureId, step: &Step) -> bool {
        let restarted = |ended: &Ended| self.shadow.resumed_at + ended.end.since(ended.at);
        let waits = self.shadow.ended.get(tenure).map(restarted);
        let waited = waits.is_none_or(|until| step.now >= until);
        waited && self.is_settled(step) && !self.lost_data && self.is_over(tenure, step)
    }

    pub(super) fn lease_released(&mut self, step: &Step, event: &Event) -> Checked {
        let (Some(tenure), Some(lease)) = (&event.tenure, &event.lease) else {
            return must(false, "a release names tenure and lease", || format!("{event:?}"));
        };
        let place = event.place.unwrap_or_default();
        let before = self.shadow.leases.remove(&(lease.clone(), place));
        let held = before.as_ref().map(|(holder, token)| (holder, Some(*token)));
        must(
            held == Some((tenure, event.token)),
            "a release names the exact tenure and token",
            || format!("{lease}: {:?} of {tenure}; held by {before:?}", event.token),
        )?;
        // A living holder has noticed an operator's release, or its deadline at the release has passed: the checks on
        // the holders themselves show whether that is true.
        let revoked = event
            .token
            .is_some_and(|token| self.shadow.revoked.contains_key(&token));
        let by_sweep = matches!(step.op, Op::Release(_)) && !revoked;
        must(
            !by_sweep || self.is_over(tenure, step),
            "the janitor frees a lease only when its holder can no longer be at work",
            || format!("{lease} of {tenure}"),
        )
    }

    pub(super) fn lease_replies(&mut self, step: &Step) -> Checked {
        match (&step.op, &step.reply) {
            (Op::Acquire(Acquire { tenure, leases, .. }), Ok(Reply::Acquire(acquired))) => {
                must(
                    leases.len() == acquired.outcomes.len(),
                    "each lease has an outcome",
                    || format!("{} for {}", acquired.outcomes.len(), leases.len()),
                )?;
                leases.iter().zip(&acquired.outcomes).try_for_each(|(lease, outcome)| {
                    let held: Vec<_> = self.shadow.places(lease).collect();
                    let right = match outcome {
                        AcquireOutcome::Granted { token, place, .. } | AcquireOutcome::Kept { token, place, .. } => {
                            held.contains(&(*place, &(tenure.clone(), *token)))
                        }
                        AcquireOutcome::Held { by, .. } => {
                            if !is_freed(step, lease, by) && self.is_surely_over(by, step) {
                                return must(false, "an acquire is not refused for the place of the dead", || {
                                    format!("{lease}: {outcome:?}, {held:?}")
                                });
                            }
                            held.iter().any(|(_, (holder, _))| holder == by) || is_freed(step, lease, by)
                        }
                        _ => held.iter().all(|(_, (holder, _))| holder != tenure),
                    };
                    must(right, "an acquire returns the holder of the lease", || {
                        format!("{lease}: {outcome:?}, {held:?}")
                    })
                })
            }
            (Op::ReleaseLeases(ReleaseLeases { tenure, leases, .. }), Ok(Reply::ReleaseLeases(given_up))) => leases
                .iter()
                .zip(&given_up.outcomes)
                .try_for_each(|((lease, token), outcome)| {
                    let mut held = self.shadow.places(lease);
                    let right = match outcome {
                        ReleaseOutcome::NotHolder { by } => {
                            let by_then = is_freed(step, lease, by) || is_taken_over(step, lease, by);
                            by_then || held.any(|(_, (holder, _))| holder == by)
                        }
                        _ => held.all(|(_, held)| *held != (tenure.clone(), *token)),
                    };
                    must(right, "a release returns the holder of the lease", || {
                        format!("{lease} {token} of {tenure}: {outcome:?}")
                    })
                }),
            (Op::Withdraw(Withdraw { tenure, lease, .. }), Ok(Reply::Withdraw(Withdrawn::GivenBack { token }))) => {
                let mut held = self.shadow.places(lease);
                let right = held.all(|(_, held)| *held != (tenure.clone(), *token));
                must(right, "a withdrawal gives back its grant", || {
                    format!("{lease} {token} of {tenure}")
                })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn lease_reads(&self, step: &Step) -> Checked {
        let resumed_at = self.shadow.resumed(step.now, step.gap);
        let look = |lease: &tenure_core::lease::Lease| {
            let held: Vec<_> = self.shadow.places(&lease.lease).collect();
            let shown = |one: &LeaseHolder| (one.place, (one.tenure.clone(), one.token));
            let right = lease.holders.len() == held.len()
                && lease.holders.iter().zip(&held).all(|(one, (place, held))| {
                    let alive = self.shadow.is_alive(&one.tenure, resumed_at, step.now);
                    shown(one) == (*place, (*held).clone()) && one.alive == alive
                });
            must(right, "reads never show a ghost", || {
                format!("{lease:?}; held by {held:?}")
            })
        };
        match &step.reply {
            Ok(Reply::LeaseOf(Some(lease))) => look(lease),
            Ok(Reply::Leases(page)) => page.items.iter().try_for_each(look),
            Ok(Reply::HeldLeases(held)) => held.page.items.iter().try_for_each(look),
            _ => Ok(()),
        }
    }
}

/// Whether the step grants the place of this ended holder to a waiter after it has decided.
fn is_taken_over(step: &Step, lease: &LeaseName, holder: &TenureId) -> bool {
    step.events.iter().any(|event| {
        let taken_over = event.kind == EventKind::LeaseTakenOver && event.lease.as_ref() == Some(lease);
        taken_over && event.from.as_ref() == Some(holder)
    })
}

/// Whether the step frees a place after it has decided: what an operator released, at the end of every step.
fn is_freed(step: &Step, lease: &LeaseName, holder: &TenureId) -> bool {
    step.events.iter().any(|event| {
        let released = event.kind == EventKind::LeaseReleased && event.lease.as_ref() == Some(lease);
        released && event.tenure.as_ref() == Some(holder)
    })
}
