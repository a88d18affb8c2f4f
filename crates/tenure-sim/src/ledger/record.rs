//! The record of the ledger, made from the calls and their answers: who is active, online and engaged.

use std::collections::BTreeMap;

use tenure::{EngagementId, Provider, ProviderId, Result, TenureId};
use tenure_core::ledger::{
    EndedBatch, EndedTenure, EngagementOutcome, ExpiredBatch, Follow, NewEngagement, OnlineOutcome, ProviderChange,
    ReserveOutcome,
};

use crate::check::{Checked, Violation, must};

#[derive(Debug, Default)]
struct ProviderRecord {
    active: bool,
    online: Option<TenureId>,
    capacity: u32,
}

/// The record.
#[derive(Debug, Default)]
pub struct LedgerRecord {
    providers: BTreeMap<ProviderId, ProviderRecord>,
    /// Open engagements and their providers.
    engaged: BTreeMap<EngagementId, ProviderId>,
    followed: Vec<TenureId>,
    violation: Option<Violation>,
}

impl LedgerRecord {
    pub(super) fn violation(&self) -> Option<Violation> {
        self.violation.clone()
    }

    pub(super) fn take_followed(&mut self) -> Vec<TenureId> {
        std::mem::take(&mut self.followed)
    }

    fn note(&mut self, checked: Checked) {
        if let (Err(violation), None) = (checked, &self.violation) {
            self.violation = Some(violation);
        }
    }

    /// An operator or the provider has changed a row.
    pub(super) fn changed(&mut self, change: &Result<ProviderChange>) {
        if let Ok(change) = change {
            self.take(&change.provider);
        }
    }

    fn take(&mut self, row: &Provider) {
        let record = ProviderRecord {
            active: row.active,
            online: row.online.clone(),
            capacity: row.capacity,
        };
        self.providers.insert(row.provider.clone(), record);
    }

    /// An operator has activated or deactivated a provider.
    pub(super) fn decided(&mut self, active: bool, change: &Result<ProviderChange>) {
        let Ok(change) = change else { return };
        let row = &change.provider;
        let right = row.active == active && (active || row.online.is_none());
        self.note(must(right, "an operator's word about a provider is final", || {
            format!("{row:?} after it was made active: {active}")
        }));
        self.take(row);
    }

    pub(super) fn went_online(&mut self, provider: &ProviderId, outcome: &Result<OnlineOutcome>) {
        let Ok(outcome) = outcome else { return };
        let active = self.providers.get(provider).is_some_and(|record| record.active);
        let (let_in, row) = match outcome {
            OnlineOutcome::Online(change) => (true, &change.provider),
            OnlineOutcome::Deactivated(row) => (false, row),
            OnlineOutcome::Stale(row) => (active, row),
        };
        self.note(must(
            let_in == active,
            "a deactivated provider does not come online",
            || format!("{outcome:?}, active: {active}"),
        ));
        self.take(row);
    }

    /// The ledger has followed ended tenures.
    pub(super) fn ended(&mut self, asked: &[EndedTenure], batch: &Result<EndedBatch>) {
        let Ok(batch) = batch else { return };
        for row in &batch.offline {
            let online = self
                .providers
                .get(&row.provider)
                .and_then(|record| record.online.clone());
            let named = asked.iter().find(|ended| online.as_ref() == Some(&ended.tenure));
            self.note(must(
                named.is_some() && row.online.is_none(),
                "auto-offline hits exactly the tenure that ended",
                || format!("{} was online under {online:?}; ended are {asked:?}", row.provider),
            ));
            self.followed.extend(online);
            self.take(row);
        }
        let spared = |ended: &EndedTenure| {
            batch
                .spared
                .iter()
                .any(|row| row.online.as_ref() == Some(&ended.tenure))
        };
        let missed = asked.iter().filter(|ended| !spared(ended)).find(|ended| {
            let mut online = self.providers.values().filter_map(|record| record.online.as_ref());
            online.any(|online| *online == ended.tenure)
        });
        let missed = missed.cloned();
        self.note(must(missed.is_none(), "the ledger follows the end of a tenure", || {
            format!("{missed:?}")
        }));
    }

    pub(super) fn followed(&mut self, asked: &[Follow], rows: &Result<Vec<Provider>>) {
        let Ok(rows) = rows else { return };
        for row in rows {
            let online = self
                .providers
                .get(&row.provider)
                .and_then(|record| record.online.clone());
            let named = asked
                .iter()
                .any(|follow| online.as_ref() == Some(&follow.from) && row.online.as_ref() == Some(&follow.to));
            self.note(must(
                named,
                "a new tenure replaces exactly the one that it follows",
                || format!("{row:?} was online under {online:?}"),
            ));
            self.take(row);
        }
    }

    pub(super) fn reserved(&mut self, new: &NewEngagement, outcome: &Result<ReserveOutcome>) {
        let Ok(ReserveOutcome::Reserved(change)) = outcome else {
            return;
        };
        let Some(provider) = change.engagement.provider.clone() else {
            return self.note(must(false, "a reserve has a provider", || format!("{change:?}")));
        };
        if self.engaged.get(&new.engagement) == Some(&provider) {
            return;
        }
        let occupied = self.engaged.values().filter(|engaged| **engaged == provider).count();
        let record = self.providers.get(&provider);
        let reachable = record.is_some_and(|record| record.active && record.online.is_some());
        let room = record.is_some_and(|record| occupied < record.capacity as usize);
        let seen = format!("{provider} with {occupied} engagements: {record:?}");
        self.note(must(
            reachable,
            "nothing is reserved with a provider that is off",
            || seen.clone(),
        ));
        self.note(must(room, "no reserve above the capacity", || seen));
        self.engaged.insert(new.engagement.clone(), provider);
    }

    pub(super) fn moved(&mut self, engagement: &EngagementId, outcome: &Result<EngagementOutcome>) {
        let Ok(EngagementOutcome::Done(change)) = outcome else {
            return;
        };
        match &change.engagement.provider {
            Some(provider) if change.engagement.status.is_open() => {
                self.engaged.insert(engagement.clone(), provider.clone());
            }
            _ => drop(self.engaged.remove(engagement)),
        }
    }

    pub(super) fn expired(&mut self, batch: &Result<ExpiredBatch>) {
        for expired in batch.iter().flat_map(|batch| &batch.expired) {
            self.engaged.remove(&expired.engagement);
        }
    }
}
