//! Convergence after the faults: every program is a member again, everything of ended tenures is released, every claim
//! is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure::{Key, LeaseName, Place, RegistryName, Verdict};

use super::World;
use crate::check::{Checked, Violation, must};
use crate::program::{LEASES, REGISTRY, SHARED, places_of};
use crate::world::disturb::Action;

/// Every program is a member this long after the last fault: a ttl to lapse, a rest of the program, a join.
const ALIVE_WITHIN: Duration = Duration::from_secs(20);
/// Everything is released this long after that: the brake's time, a grace, and a sweep.
const CLEAN_WITHIN: Duration = Duration::from_secs(30);

/// How often convergence is checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl World {
    pub(super) fn must_converge(&mut self) {
        self.calm_since = self.clock.now();
        self.plan(LOOK_EVERY, Action::CheckConvergence);
    }

    /// Checks convergence. A failed check is a violation only after its time limit.
    pub(super) fn check_convergence(&mut self) -> Result<(), Violation> {
        let calm_for = self.clock.now().since(self.calm_since);
        let alive = self.all_are_alive();
        if calm_for >= ALIVE_WITHIN {
            alive.clone()?;
        }
        let clean = alive.and_then(|()| self.is_clean());
        if calm_for >= ALIVE_WITHIN + CLEAN_WITHIN {
            clean.clone()?;
        }
        // A converged state stays, because the programs no longer act.
        self.over = clean.is_ok();
        self.plan(LOOK_EVERY, Action::CheckConvergence);
        self.compare()
    }

    fn all_are_alive(&self) -> Checked {
        for index in 0..self.nodes.len() - 1 {
            let membership = self.nodes[index].view().and_then(crate::program::View::membership);
            let tenure = membership.as_ref().map(|membership| membership.tenure());
            let verdict = membership.as_ref().map(|membership| membership.verdict());
            must(
                verdict == Some(Verdict::Held),
                "every program is a member once the faults stop",
                || format!("n{index}: {tenure:?} {verdict:?}"),
            )?;
            let current = tenure.as_ref().and_then(|tenure| self.checker.shadow.current(tenure));
            must(
                current.is_some(),
                "a member that trusts its tenure is alive in the store",
                || format!("n{index}: {tenure:?}, not {:?}", self.checker.shadow.current.values()),
            )?;
        }
        Ok(())
    }

    fn is_clean(&self) -> Checked {
        let shadow = &self.checker.shadow;
        let left = shadow.claims.iter().find(|(_, owner)| shadow.current(owner).is_none());
        must(
            left.is_none(),
            "holdings of ended tenures are released once the faults stop",
            || format!("{left:?}"),
        )?;
        (0..self.nodes.len() - 1).try_for_each(|index| self.owns_its_claims(index))?;
        self.sessions_are_held()?;
        self.roster_agrees()?;
        LEASES.iter().chain(&SHARED).try_for_each(|lease| self.is_held(lease))
    }

    /// Every place of the lease is held by a living member that knows it.
    fn is_held(&self, name: &str) -> Checked {
        let Ok(lease) = LeaseName::new(name) else { return Ok(()) };
        let held: BTreeMap<Place, _> = self.checker.shadow.places(&lease).collect();
        let mut known = BTreeSet::new();
        for node in &self.nodes {
            let Some(view) = node.view() else { continue };
            view.for_each_guard(|guard| {
                let same = held.get(&guard.place()) == Some(&&(guard.tenure().clone(), guard.token()));
                if same && *guard.lease() == lease && guard.verdict() == Verdict::Held {
                    known.insert(guard.place());
                }
            });
        }
        must(
            known.len() == usize::from(places_of(&lease)),
            "every place of a lease is held again once the faults stop",
            || format!("{lease}: the store has {held:?}, and the guards of {known:?} are held"),
        )
    }

    /// A program owns every key that it believes to own, unless a living member took it.
    fn owns_its_claims(&self, index: usize) -> Result<(), Violation> {
        let Some(view) = self.nodes[index].view() else {
            return Ok(());
        };
        let Ok(registry) = RegistryName::new(REGISTRY) else {
            return Ok(());
        };
        let Some(tenure) = view.membership().map(|membership| membership.tenure()) else {
            return Ok(());
        };
        for name in view.claims() {
            let Ok(key) = Key::new(&name) else { continue };
            let entry = (registry.clone(), key);
            let owner = self.checker.shadow.claims.get(&entry);
            let fine = match owner {
                Some(owner) => *owner == tenure || owner.member() != tenure.member(),
                None => false,
            };
            must(
                fine || self.checker.may_be_gone(&entry, tenure.member()),
                "lost claims of a member are claimed again",
                || format!("n{index} {tenure} believes to own {name}, of {owner:?}"),
            )?;
        }
        Ok(())
    }
}
