//! Claims: each has one owner, moves only by an act of a living tenure, and is removed once, from an ended tenure.

use tenure::{Claim, ClaimMode, ClaimOutcome, EndReason, Event, Key, RegistryName, TenureId};
use tenure_core::call::{Op, Reply};
use tenure_core::registry::{ClaimKeys, ClaimOf, ReleaseClaim};
use tenure_core::sweep::Release;

use super::{Checked, Checker, LATE, must};
use crate::step::Step;

impl Checker {
    pub(super) fn evicted(&mut self, step: &Step, event: &Event) -> Checked {
        let Op::Release(Release(request)) = &step.op else {
            return must(false, "only a sweep evicts", || format!("{:?}", step.op));
        };
        let Some(tenure) = &event.tenure else {
            return must(false, "an event names its tenure", || "evicted".to_owned());
        };
        must(
            event.pass.as_ref() == Some(&request.pass),
            "an eviction names its pass",
            || format!("{:?}, not {}", event.pass, request.pass),
        )?;
        let ended = self.shadow.ended.get(tenure);
        let may = ended.is_some_and(|ended| !(self.shadow.braked && ended.reason == EndReason::Lapsed));
        must(
            may,
            "only ended tenures are evicted, and not while the brake holds",
            || format!("{tenure}, {ended:?}, braked: {}", self.shadow.braked),
        )?;
        let counted: u64 = event.counts.values().sum();
        must(
            counted == event.keys.len() as u64,
            "every entry removed is counted",
            || format!("{:?} for {:?}", event.counts, event.keys),
        )?;
        self.evicted_connections(step, event, tenure)?;
        event.keys.iter().try_for_each(|name| {
            let entry = name
                .split_once('/')
                .and_then(|(registry, key)| Some((RegistryName::new(registry).ok()?, Key::new(key).ok()?)));
            let removed = entry.and_then(|entry| self.shadow.claims.remove(&entry));
            must(
                removed.as_ref() == Some(tenure),
                "each holding is released once, from its exact tenure",
                || format!("{name} was evicted from {tenure}; its owner was {removed:?}"),
            )
        })
    }

    pub(super) fn claim_replies(&mut self, step: &Step) -> Checked {
        match (&step.op, &step.reply) {
            (
                Op::Claim(ClaimKeys {
                    registry,
                    tenure,
                    keys,
                    mode,
                }),
                Ok(Reply::Claim(claimed)),
            ) => {
                must(keys.len() == claimed.outcomes.len(), "each key has an outcome", || {
                    format!("{} for {}", claimed.outcomes.len(), keys.len())
                })?;
                keys.iter().zip(&claimed.outcomes).try_for_each(|(key, outcome)| {
                    self.claimed(step, &(registry.clone(), key.clone()), tenure, *mode, outcome)
                })
            }
            (Op::ReleaseClaim(ReleaseClaim { registry, key, tenure }), Ok(Reply::ReleaseClaim(()))) => {
                let entry = (registry.clone(), key.clone());
                let owner = self.shadow.claims.remove(&entry);
                must(
                    owner.as_ref().is_none_or(|owner| owner == tenure),
                    "a release names the exact tenure",
                    || format!("{tenure} released {key} of {owner:?}"),
                )?;
                if step.at.since(step.sent_at) > LATE {
                    // Its not-after let it through because the store's clock had fallen back. A late call and a clock
                    // that falls back are two faults; the sender does not learn of the release.
                    self.gone.insert((entry, tenure.member().clone()));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn claimed(
        &mut self,
        step: &Step,
        entry: &(RegistryName, Key),
        tenure: &TenureId,
        mode: ClaimMode,
        outcome: &ClaimOutcome,
    ) -> Checked {
        let owner = self.shadow.claims.get(entry).cloned();
        let alive = |owner: &TenureId| self.shadow.is_alive(owner, step.resumed_at, step.now);
        let right = match (outcome, &owner) {
            (ClaimOutcome::New, None) => true,
            (ClaimOutcome::Kept, Some(owner)) => owner == tenure,
            (ClaimOutcome::Moved { from }, Some(owner)) => {
                let may = mode == ClaimMode::Take || owner.member() == tenure.member() || !alive(owner);
                from == owner && owner != tenure && may
            }
            (ClaimOutcome::Held { by }, Some(owner)) => by == owner && mode == ClaimMode::IfAbsent && alive(owner),
            _ => false,
        };
        must(right, "a claim moves only as its mode says", || {
            format!("{entry:?} of {owner:?}: {outcome:?} for {tenure}")
        })?;
        if let ClaimOutcome::Moved { from } = outcome
            && from.member() != tenure.member()
        {
            self.gone.insert((entry.clone(), from.member().clone()));
        }
        if !matches!(outcome, ClaimOutcome::Held { .. }) {
            self.gone.remove(&(entry.clone(), tenure.member().clone()));
            self.shadow.claims.insert(entry.clone(), tenure.clone());
        }
        Ok(())
    }

    pub(super) fn claim_reads(&self, step: &Step) -> Checked {
        match (&step.op, &step.reply) {
            (Op::ClaimOf(ClaimOf { registry, key }), Ok(Reply::ClaimOf(claim))) => {
                let owner = self.shadow.claims.get(&(registry.clone(), key.clone()));
                must(
                    owner == claim.as_ref().map(|claim| &claim.tenure),
                    "a look-up returns the owner",
                    || format!("{claim:?}, not {owner:?}"),
                )?;
                claim.iter().try_for_each(|claim| self.seen_claim(step, claim))
            }
            (_, Ok(Reply::Claims(page))) => page.items.iter().try_for_each(|claim| self.seen_claim(step, claim)),
            _ => Ok(()),
        }
    }

    fn seen_claim(&self, step: &Step, claim: &Claim) -> Checked {
        let resumed_at = self.shadow.resumed(step.now, step.gap);
        let alive = self.shadow.is_alive(&claim.tenure, resumed_at, step.now);
        must(claim.alive == alive, "reads never show a ghost", || {
            format!("{claim:?}")
        })
    }
}
