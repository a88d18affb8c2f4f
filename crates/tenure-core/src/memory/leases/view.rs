//! Reading leases.

use super::PlaceKey;
use crate::error::Result;
use crate::id::{LeaseName, TenureId};
use crate::lease::{Holders, Lease, LeaseHolder, LeaseOf};
use crate::memory::GroupModel;
use crate::memory::decide::Decide;
use crate::memory::rows::LeaseRow;
use crate::time::StoreTime;

impl Decide<LeaseOf> for GroupModel {
    fn read(&self, ask: &LeaseOf, now: StoreTime) -> Result<Option<Lease>> {
        Ok(self.lease_of(&ask.lease, None, now))
    }
}

impl GroupModel {
    /// Reads a lease; with the fields of one holder for that tenure, if it holds the lease.
    pub(in crate::memory) fn lease_of(
        &self,
        lease: &LeaseName,
        of: Option<&TenureId>,
        now: StoreTime,
    ) -> Option<Lease> {
        self.leases.counts.get(lease);
        let resumed_at = self.resumed_for_reading(now);
        let rows: Vec<(&PlaceKey, &LeaseRow)> = self.lease_rows(lease).collect();
        let holders: Vec<LeaseHolder> = rows
            .iter()
            .map(|((_, place), row)| LeaseHolder {
                holder: row.tenure.member().clone(),
                tenure: row.tenure.clone(),
                token: row.token,
                place: *place,
                generation: row.generation,
                alive: self.is_alive(&row.tenure, resumed_at, now),
                revoked: row.revoked.is_some(),
                expires_in: self.grant_free_in(row, resumed_at, now),
            })
            .collect();
        let newest = rows.iter().max_by_key(|(_, row)| row.token).map(|(_, row)| row.holders);
        let taken = self.places_of(lease, resumed_at, now);
        let places = taken.holders().or(newest).unwrap_or(Holders::ONE);
        let free = usize::from(places.get()).saturating_sub(taken.count());
        let free = u32::try_from(free).unwrap_or(u32::MAX);
        let waiting = self.waiting(lease, resumed_at, now);
        Lease::of_holders(lease.clone(), holders, (places, free, waiting), of)
    }
}
