//! The rows of a roster's providers, and in order who can take work.
//!
//! Where a provider belongs follows from its row and from the current tenure of its member, so it is found again whenever one of
//! the two changes. It is stored nowhere and cannot disagree with the rows.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::rows::ProviderRow;
use super::table::Table;
use crate::id::{ProviderId, TenureId};
use crate::ledger::RosterStats;

/// Providers.
#[derive(Debug, Default)]
pub(super) struct Seats {
    pub(super) rows: Table<ProviderId, ProviderRow>,
    /// Those whose row names the current tenure of their member.
    seated: BTreeSet<ProviderId>,
    /// Of them those that are active and have room, by how many engagements they have.
    free: BTreeSet<(u32, ProviderId)>,
    active: u64,
    seated_and_active: u64,
}

impl Seats {
    /// Sets a row or removes it; `current` is the current tenure of its member. Answers the one before.
    pub(super) fn set(
        &mut self,
        provider: &ProviderId,
        row: Option<ProviderRow>,
        current: Option<&TenureId>,
    ) -> Option<ProviderRow> {
        self.leave(provider);
        let before = self.rows.set(provider.clone(), row);
        self.enter(provider, current);
        before
    }

    /// The current tenure of a member has changed.
    pub(super) fn reseat(&mut self, provider: &ProviderId, current: Option<&TenureId>) {
        if self.rows.own_key(provider).is_some() {
            self.leave(provider);
            self.enter(provider, current);
        }
    }

    fn leave(&mut self, provider: &ProviderId) {
        let Some(ProviderRow { provider: row, .. }) = self.rows.get(provider) else {
            return;
        };
        let seated = self.seated.remove(provider);
        self.active -= u64::from(row.active);
        self.seated_and_active -= u64::from(row.active && seated);
        if seated && row.has_room() {
            self.free.remove(&(row.occupancy, provider.clone()));
        }
    }

    fn enter(&mut self, provider: &ProviderId, current: Option<&TenureId>) {
        let Some(ProviderRow { provider: row, .. }) = self.rows.get(provider) else {
            return;
        };
        let seated = row.online.as_ref().is_some_and(|online| Some(online) == current);
        self.active += u64::from(row.active);
        self.seated_and_active += u64::from(row.active && seated);
        if seated {
            self.seated.insert(provider.clone());
        }
        if seated && row.has_room() {
            self.free.insert((row.occupancy, provider.clone()));
        }
    }

    /// Those that can take work behind a place, as far as no deadline has passed.
    pub(super) fn free_after(&self, after: Option<(u32, ProviderId)>) -> impl Iterator<Item = &(u32, ProviderId)> {
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.free.range((behind, Bound::Unbounded))
    }

    /// Counts of which those are taken off that lapsed, and as many as were not looked at.
    pub(super) fn count(&self, lapsed: impl Iterator<Item = ProviderId>, unseen: u64) -> RosterStats {
        let (mut seated, mut seated_and_active) = (self.seated.len() as u64, self.seated_and_active);
        let mut free = self.free.len() as u64;
        for provider in lapsed.filter(|provider| self.seated.contains(provider)) {
            let Some(ProviderRow { provider: row, .. }) = self.rows.get(&provider) else {
                continue;
            };
            seated -= 1;
            seated_and_active -= u64::from(row.active);
            free -= u64::from(row.has_room());
        }
        RosterStats {
            online: seated.saturating_sub(unseen),
            available: free.saturating_sub(unseen),
            busy: (seated - free).saturating_sub(unseen),
            offline: self.active - seated_and_active,
            deactivated: self.rows.len() as u64 - self.active,
            ..RosterStats::default()
        }
    }
}
