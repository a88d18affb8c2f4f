//! After the faults: everybody is alive again, everything is cleaned up, nothing was forgotten.

use std::time::Duration;

use tenure::{Key, RegistryName, Verdict};

use super::{BRAKE_HOLD, MAX_TTL, World};
use crate::check::{Violation, must};
use crate::program::REGISTRY;
use crate::world::disturb::Change;

/// Everybody is alive this long after the last fault: a ttl to lapse, a rest of the program, a join.
const ALIVE_WITHIN: Duration = Duration::from_secs(14);

impl World {
    pub(super) fn must_converge(&mut self) {
        self.plan(ALIVE_WITHIN, Change::MustLive);
        self.plan(ALIVE_WITHIN + BRAKE_HOLD + MAX_TTL * 2, Change::MustBeClean);
    }

    pub(super) fn must_live(&mut self) -> Result<(), Violation> {
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
        self.compare()
    }

    pub(super) fn must_be_clean(&mut self) -> Result<(), Violation> {
        self.must_live()?;
        let shadow = &self.checker.shadow;
        let left = shadow.claims.iter().find(|(_, owner)| shadow.current(owner).is_none());
        must(
            left.is_none(),
            "what the dead held is released once the faults stop",
            || format!("{left:?}"),
        )?;
        for index in 0..self.nodes.len() - 1 {
            self.remembers(index)?;
        }
        self.over = true;
        Ok(())
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
                fine || self.checker.was_lost(&entry),
                "what a member claimed is claimed again for it",
                || format!("n{index} {tenure} believes to own {name}, of {owner:?}"),
            )?;
        }
        Ok(())
    }
}
