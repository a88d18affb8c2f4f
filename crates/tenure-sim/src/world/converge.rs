//! After the faults: everybody is alive again, everything is cleaned up, nothing was forgotten.

use std::time::Duration;

use tenure::{Key, LeaseName, RegistryName, Verdict};

use super::World;
use crate::check::{Checked, Violation, must};
use crate::program::{LEASES, REGISTRY};
use crate::world::disturb::Change;

/// Everybody is alive this long after the last fault: a ttl to lapse, a rest of the program, a join.
const ALIVE_WITHIN: Duration = Duration::from_secs(20);
/// Everything is cleaned up this long after that: the brake's time, a grace, and a sweep.
const CLEAN_WITHIN: Duration = Duration::from_secs(30);

/// How often it is looked whether that is so already.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl World {
    pub(super) fn must_converge(&mut self) {
        self.calm_since = self.clock.now();
        self.plan(LOOK_EVERY, Change::Look);
    }

    /// Looks whether all is well again; a violation only once it has to be.
    pub(super) fn look(&mut self) -> Result<(), Violation> {
        let calm_for = self.clock.now().since(self.calm_since);
        let lives = self.lives();
        if calm_for >= ALIVE_WITHIN {
            lives.clone()?;
        }
        let clean = lives.and_then(|()| self.is_clean());
        if calm_for >= ALIVE_WITHIN + CLEAN_WITHIN {
            clean.clone()?;
        }
        // What is clean stays so: nobody does anything any more.
        self.over = clean.is_ok();
        self.plan(LOOK_EVERY, Change::Look);
        self.compare()
    }

    fn lives(&self) -> Checked {
        for index in 0..self.nodes.len() - 1 {
            let membership = self.nodes[index].view().and_then(crate::program::View::membership);
            let tenure = membership.as_ref().map(|membership| membership.tenure());
            let verdict = membership.as_ref().map(|membership| membership.verdict());
            must(
                verdict == Some(Verdict::Held),
                "everybody lives again once the faults stop",
                || format!("n{index}: {tenure:?} {verdict:?}"),
            )?;
            let current = tenure.as_ref().and_then(|tenure| self.checker.shadow.current(tenure));
            must(current.is_some(), "who trusts itself is alive in the store", || {
                format!("n{index}: {tenure:?}, not {:?}", self.checker.shadow.current.values())
            })?;
        }
        Ok(())
    }

    fn is_clean(&self) -> Checked {
        let shadow = &self.checker.shadow;
        let left = shadow.claims.iter().find(|(_, owner)| shadow.current(owner).is_none());
        must(
            left.is_none(),
            "what the dead held is released once the faults stop",
            || format!("{left:?}"),
        )?;
        (0..self.nodes.len() - 1).try_for_each(|index| self.remembers(index))?;
        LEASES.iter().try_for_each(|lease| self.is_held(lease))
    }

    /// A lease is held by somebody alive who knows it.
    fn is_held(&self, name: &str) -> Checked {
        let Ok(lease) = LeaseName::new(name) else { return Ok(()) };
        let held = self.checker.shadow.leases.get(&lease);
        let mut known = false;
        for node in &self.nodes {
            let Some(view) = node.view() else { continue };
            view.for_each_guard(|guard| {
                let same = held == Some(&(guard.tenure().clone(), guard.token()));
                known |= same && *guard.lease() == lease && guard.verdict() == Verdict::Held;
            });
        }
        must(known, "every target is held again once the faults stop", || {
            format!("{lease}: the store has {held:?}, and no such guard is held")
        })
    }

    /// What a program believes to own, it owns, or somebody alive took it.
    fn remembers(&self, index: usize) -> Result<(), Violation> {
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
                "what a member claimed is claimed again for it",
                || format!("n{index} {tenure} believes to own {name}, of {owner:?}"),
            )?;
        }
        Ok(())
    }
}
