//! Claims of registries, on one group.

use super::group::GroupModel;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Key, RegistryName, TenureId};
use crate::membership::Revision;
use crate::registry::{Claim, ClaimMode, ClaimOutcome, Claimed};
use crate::store::Call;
use crate::time::StoreTime;

impl GroupModel {
    /// Claims keys. A tenure that is met past its end is ended even though the call fails.
    pub(super) fn claim(
        &mut self,
        registry: &RegistryName,
        tenure: &TenureId,
        keys: &[Key],
        mode: ClaimMode,
        call: Call,
        now: StoreTime,
    ) -> Result<Claimed> {
        self.open(now, call)?;
        let before = self.revision_of(tenure);
        let outcomes = self.require_alive(tenure, now).map(|()| {
            keys.iter()
                .map(|key| self.claim_one(registry, tenure, key, mode, now))
                .collect::<Vec<_>>()
        });
        let gained = |outcome: &ClaimOutcome| matches!(outcome, ClaimOutcome::New | ClaimOutcome::Moved { .. });
        if outcomes.as_ref().is_ok_and(|outcomes| outcomes.iter().any(gained)) {
            let number = self.next_number(now);
            self.revise(tenure, Revision(number));
        }
        self.engage_brake(now);
        Ok(Claimed {
            outcomes: outcomes?,
            revision: self.revision_of(tenure),
            before,
        })
    }

    fn claim_one(
        &mut self,
        registry: &RegistryName,
        tenure: &TenureId,
        key: &Key,
        mode: ClaimMode,
        now: StoreTime,
    ) -> ClaimOutcome {
        let holding = (registry.clone(), key.clone());
        let owner = self.claims.get(registry).and_then(|claims| claims.get(key)).cloned();
        let outcome = match owner {
            None => ClaimOutcome::New,
            Some(owner) if owner == *tenure => return ClaimOutcome::Kept,
            Some(owner) => {
                if owner.member() != tenure.member() {
                    self.end_if_past(&owner, now);
                    if mode == ClaimMode::IfAbsent && self.current(&owner).is_some() {
                        return ClaimOutcome::Held { by: owner };
                    }
                }
                self.drop_holding(&owner, &holding);
                ClaimOutcome::Moved { from: owner }
            }
        };
        self.claims
            .entry(registry.clone())
            .or_default()
            .insert(key.clone(), tenure.clone());
        self.held.entry(tenure.clone()).or_default().insert(holding);
        outcome
    }

    /// Gives one up.
    pub(super) fn release_claim(
        &mut self,
        registry: &RegistryName,
        key: &Key,
        tenure: &TenureId,
        call: Call,
        now: StoreTime,
    ) -> Result<()> {
        self.open(now, call)?;
        let done = self.require_alive(tenure, now).and_then(|()| {
            match self.claims.get(registry).and_then(|claims| claims.get(key)) {
                None => Ok(()),
                Some(owner) if owner == tenure => {
                    self.remove_claim(registry, key);
                    self.drop_holding(tenure, &(registry.clone(), key.clone()));
                    Ok(())
                }
                Some(owner) => Err(Error::new(
                    ErrorKind::NotOwner,
                    format!("{key} in the registry {registry} is owned by {owner}, not by {tenure}"),
                )),
            }
        });
        self.engage_brake(now);
        done
    }

    /// Removes an entry, and the registry with its last one.
    pub(super) fn remove_claim(&mut self, registry: &RegistryName, key: &Key) {
        if let Some(claims) = self.claims.get_mut(registry) {
            claims.remove(key);
            if claims.is_empty() {
                self.claims.remove(registry);
            }
        }
    }

    /// Looks one up.
    pub(super) fn claim_of(&self, registry: &RegistryName, key: &Key, now: StoreTime) -> Option<Claim> {
        let tenure = self.claims.get(registry)?.get(key)?;
        Some(self.claim_view(key, tenure, now))
    }

    pub(super) fn claim_view(&self, key: &Key, tenure: &TenureId, now: StoreTime) -> Claim {
        let alive = self.is_alive(tenure, self.resumed_for_reading(now), now);
        Claim {
            key: key.clone(),
            owner: tenure.member().clone(),
            tenure: tenure.clone(),
            alive,
        }
    }
}
