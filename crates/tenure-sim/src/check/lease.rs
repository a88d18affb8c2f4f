//! Leases: tokens rise, a grant waits for the last deadline of a holder that may still work, a release names its token.

use tenure::{Event, TenureId};
use tenure_core::call::{Op, Reply};
use tenure_core::lease::{Acquire, AcquireOutcome, ReleaseLeases, ReleaseOutcome};

use super::{Checked, Checker, must};
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
        let settled = self.shadow.unsettled_until.is_none_or(|until| step.now >= until);
        must(settled, "nothing is granted inside a grace period", || {
            format!("{lease} to {tenure} at {}", step.now)
        })?;
        let before = self.shadow.leases.insert(lease.clone(), (tenure.clone(), token));
        let Some((holder, _)) = before else {
            return Ok(());
        };
        must(
            self.is_over(&holder, step),
            "a lease is granted only when its holder can no longer be at work",
            || format!("{lease} to {tenure} from {holder}"),
        )
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

    pub(super) fn lease_released(&mut self, step: &Step, event: &Event) -> Checked {
        let (Some(tenure), Some(lease)) = (&event.tenure, &event.lease) else {
            return must(false, "a release names tenure and lease", || format!("{event:?}"));
        };
        let before = self.shadow.leases.remove(lease);
        let held = before.as_ref().map(|(holder, token)| (holder, Some(*token)));
        must(
            held == Some((tenure, event.token)),
            "a release names the exact tenure and token",
            || format!("{lease}: {:?} of {tenure}; held by {before:?}", event.token),
        )?;
        let by_sweep = matches!(step.op, Op::Release(_));
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
                    let held = self.shadow.leases.get(lease);
                    let right = match outcome {
                        AcquireOutcome::Granted { token, .. } | AcquireOutcome::Kept { token, .. } => {
                            held == Some(&(tenure.clone(), *token))
                        }
                        AcquireOutcome::Held { by, .. } => held.is_some_and(|(holder, _)| holder == by),
                        _ => held.is_none_or(|(holder, _)| holder != tenure),
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
                    let held = self.shadow.leases.get(lease);
                    let right = match outcome {
                        ReleaseOutcome::NotHolder { by } => held.is_some_and(|(holder, _)| holder == by),
                        _ => held.is_none(),
                    };
                    must(right, "a release returns the holder of the lease", || {
                        format!("{lease} {token} of {tenure}: {outcome:?}, {held:?}")
                    })
                }),
            _ => Ok(()),
        }
    }

    pub(super) fn lease_reads(&self, step: &Step) -> Checked {
        let resumed_at = self.shadow.resumed_for_reading(step.now, step.gap);
        let look = |lease: &tenure_core::lease::Lease| {
            let held = self.shadow.leases.get(&lease.lease);
            let alive = self.shadow.is_alive(&lease.tenure, resumed_at, step.now);
            let right = held == Some(&(lease.tenure.clone(), lease.token)) && lease.alive == alive;
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
