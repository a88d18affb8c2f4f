//! The provider rows of a roster, and an index of the available providers.
//!
//! The index entry of a provider follows from its row and from the current tenure of its member, and is updated when
//! one of them changes. It is not stored, so it cannot disagree with the rows.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::rows::ProviderRow;
use super::table::Table;
use crate::id::{ProviderId, TenureId};
use crate::ledger::RosterStats;

/// The providers of a roster.
#[derive(Debug, Default)]
pub(super) struct Seats {
    pub(super) rows: Table<ProviderId, ProviderRow>,
    /// Providers whose row names the current tenure of their member.
    seated: BTreeSet<ProviderId>,
    /// The active ones of them with room, by occupancy.
    free: BTreeSet<(u32, ProviderId)>,
    active: u64,
    seated_and_active: u64,
}

impl Seats {
    /// Sets or removes a row; `current` is the current tenure of its member. Returns the previous row.
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

    /// Updates the index after the current tenure of a member has changed.
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

    /// The available providers after a cursor, without regard to passed deadlines.
    pub(super) fn free_after(&self, after: Option<(u32, ProviderId)>) -> impl Iterator<Item = &(u32, ProviderId)> {
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.free.range((behind, Bound::Unbounded))
    }

    /// The counts by state, without lapsed providers and without as many as were not checked.
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
