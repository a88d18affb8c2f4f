//! The claims of one group.

use std::collections::{BTreeMap, HashMap};

use super::decide::Decide;
use super::group::GroupModel;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Key, RegistryName, TenureId};
use crate::membership::Revision;
use crate::registry::{Claim, ClaimKeys, ClaimMode, ClaimOf, ClaimOutcome, Claimed, ReleaseClaim};
use crate::store::Call;
use crate::time::StoreTime;

/// The number of keys per registry. The name of a registry is stored once for all of its keys.
#[derive(Debug, Default)]
pub(super) struct Registries(BTreeMap<RegistryName, u64>);

impl Registries {
    /// The shared text of a registry's name.
    fn name(&self, registry: &RegistryName) -> RegistryName {
        let own = self.0.get_key_value(registry);
        own.map_or_else(|| registry.clone(), |(own, _)| own.clone())
    }

    fn add(&mut self, registry: &RegistryName) {
        *self.0.entry(registry.clone()).or_default() += 1;
    }

    fn drop(&mut self, registry: &RegistryName) {
        if let Some(keys) = self.0.get_mut(registry) {
            *keys -= 1;
            if *keys == 0 {
                self.0.remove(registry);
            }
        }
    }
}

impl Decide<ClaimKeys> for GroupModel {
    /// Claims keys. A tenure found past its end is ended even though the call fails.
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
        let owner = self.owner_of(registry, key).cloned();
        match owner {
            None => {
                self.set_claim(registry, key, Some(tenure));
                ClaimOutcome::New
            }
            Some(owner) if owner == *tenure => ClaimOutcome::Kept,
            Some(owner) => {
                if owner.member() != tenure.member() {
                    self.end_if_past(&owner, now);
                    if mode == ClaimMode::IfAbsent && self.current(&owner).is_some() {
                        return ClaimOutcome::Held { by: owner };
                    }
                }
                self.set_claim(registry, key, Some(tenure));
                self.note_loss(&owner);
                ClaimOutcome::Moved { from: owner }
            }
        }
    }

    /// The tenure that owns a key.
    pub(super) fn owner_of(&self, registry: &RegistryName, key: &Key) -> Option<&TenureId> {
        self.claims.get(&(registry.clone(), key.clone()))
    }

    /// Sets the owners of very many unclaimed keys.
    pub(crate) fn fill_claims(&mut self, mut claims: Vec<((RegistryName, Key), TenureId)>) {
        claims.sort_by(|(one, _), (two, _)| one.cmp(two));
        let mut owned: HashMap<TenureId, (TenureId, Vec<(RegistryName, Key)>)> = HashMap::new();
        for ((registry, key), tenure) in &mut claims {
            self.registries.add(registry);
            *registry = self.registries.name(registry);
            let own = || (self.own_name(tenure), Vec::new());
            let (own, keys) = owned.entry(tenure.clone()).or_insert_with(own);
            keys.push((registry.clone(), key.clone()));
            *tenure = own.clone();
        }
        self.claims.fill(claims);
        let mut owned: Vec<_> = owned.into_values().collect();
        owned.sort_by(|(one, _), (two, _)| one.cmp(two));
        self.held.fill_claims(owned);
    }

    /// Sets the owner of a key, or removes the claim.
    pub(super) fn set_claim(&mut self, registry: &RegistryName, key: &Key, tenure: Option<&TenureId>) {
        let tenure = tenure.map(|tenure| self.own_name(tenure));
        let registry = self.registries.name(registry);
        let before = self.claims.set((registry.clone(), key.clone()), tenure.clone());
        if before == tenure {
            return;
        }
        if let Some(before) = before {
            self.registries.drop(&registry);
            self.held.drop_claim(before, registry.clone(), key.clone());
        }
        if let Some(tenure) = tenure {
            self.registries.add(&registry);
            self.held.add_claim(tenure, registry, key.clone());
        }
    }
}

impl Decide<ReleaseClaim> for GroupModel {
    /// Releases a claim.
    fn step(&mut self, ask: &ReleaseClaim, call: Call, now: StoreTime) -> Result<()> {
        let ReleaseClaim { registry, key, tenure } = ask;
        self.open(now, call)?;
        let done = self
            .require_alive(tenure, now)
            .and_then(|()| match self.owner_of(registry, key) {
                None => Ok(()),
                Some(owner) if owner == tenure => {
                    self.set_claim(registry, key, None);
                    Ok(())
                }
                Some(owner) => Err(Error::new(
                    ErrorKind::NotOwner,
                    format!("{key} in the registry {registry} is owned by {owner}, not by {tenure}"),
                )
                .with_holder(owner.clone())),
            });
        self.engage_brake(now);
        done
    }
}

impl Decide<ClaimOf> for GroupModel {
    /// Reads a claim.
    fn read(&self, ClaimOf { registry, key }: &ClaimOf, now: StoreTime) -> Result<Option<Claim>> {
        let tenure = self.owner_of(registry, key);
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
