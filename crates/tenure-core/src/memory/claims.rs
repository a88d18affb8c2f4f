//! Claims of registries, on one group.

use super::decide::Decide;
use super::group::GroupModel;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Key, RegistryName, TenureId};
use crate::membership::Revision;
use crate::registry::{Claim, ClaimKeys, ClaimMode, ClaimOf, ClaimOutcome, Claimed, ReleaseClaim};
use crate::store::Call;
use crate::time::StoreTime;

impl Decide<ClaimKeys> for GroupModel {
    /// Claims keys. A tenure that is met past its end is ended even though the call fails.
    fn step(&mut self, ask: &ClaimKeys, call: Call, now: StoreTime) -> Result<Claimed> {
        let ClaimKeys { registry, tenure, .. } = ask;
        self.open(now, call)?;
        let before = self.revision_of(tenure);
        let outcomes = self.require_alive(tenure, now).map(|()| {
            ask.keys
                .iter()
                .map(|key| self.claim_one(registry, tenure, key, ask.mode, now))
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
}

impl GroupModel {
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
}

impl Decide<ReleaseClaim> for GroupModel {
    /// Gives one up.
    fn step(&mut self, ask: &ReleaseClaim, call: Call, now: StoreTime) -> Result<()> {
        let ReleaseClaim { registry, key, tenure } = ask;
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
}

impl GroupModel {
    /// Removes an entry, and the registry with its last one.
    pub(super) fn remove_claim(&mut self, registry: &RegistryName, key: &Key) {
        if let Some(claims) = self.claims.get_mut(registry) {
            claims.remove(key);
            if claims.is_empty() {
                self.claims.remove(registry);
            }
        }
    }
}

impl Decide<ClaimOf> for GroupModel {
    /// Looks one up.
    fn read(&self, ClaimOf { registry, key }: &ClaimOf, now: StoreTime) -> Result<Option<Claim>> {
        let tenure = self.claims.get(registry).and_then(|claims| claims.get(key));
        Ok(tenure.map(|tenure| self.claim_view(key, tenure, now)))
    }
}

impl GroupModel {
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
