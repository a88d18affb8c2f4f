//! The leases of one group: the holders of their places, reservations, and waiters.

mod acquire;
mod places;
mod queue;
mod release;
mod revoke;
mod serve;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::queue::QueueModel;
use super::group::GroupModel;
use super::rows::{LeaseRow, ReservedRow};
use super::table::Table;
use crate::id::{LeaseName, TenureId};
use crate::lease::Place;
use crate::membership::Revision;
use crate::settling::end_of;
use crate::time::StoreTime;

/// One place of a lease.
pub(super) type PlaceKey = (LeaseName, Place);

/// Held, reserved and awaited leases.
#[derive(Debug, Default)]
pub(super) struct LeasesModel {
    pub(super) table: Table<PlaceKey, LeaseRow>,
    /// The number of rows of each lease. Every change of a lease touches it, so that a read sees the changes of one lease.
    pub(super) counts: Table<LeaseName, u16>,
    /// Handed-off leases that wait for their successor.
    pub(super) reserved: Table<PlaceKey, ReservedRow>,
    reserved_by_time: BTreeSet<(StoreTime, PlaceKey)>,
    /// Grants that an operator released, by tenure, with the revision of the release.
    revoked: BTreeMap<TenureId, BTreeMap<PlaceKey, Revision>>,
    /// Grants that an operator released, by the time at which they end in any case.
    limits: BTreeSet<(StoreTime, PlaceKey)>,
    pub(super) queue: QueueModel,
}

impl LeasesModel {
    /// Reserves a place for a member, or removes the reservation.
    pub(super) fn reserve(&mut self, key: &PlaceKey, row: Option<ReservedRow>) {
        let until = row.as_ref().map(|row| row.until);
        let _ = self.counts.change(&key.0);
        if let Some(before) = self.reserved.set(key.clone(), row) {
            self.reserved_by_time.remove(&(before.until, key.clone()));
        }
        match until {
            Some(until) => drop(self.reserved_by_time.insert((until, key.clone()))),
            None => self.queue.wake(&key.0, StoreTime::ZERO),
        }
    }

    /// Drops expired reservations.
    pub(super) fn forget_reservations(&mut self, limit: u32, now: StoreTime) {
        let over = self.reserved_by_time.iter().take_while(|(until, _)| *until <= now);
        let over: Vec<_> = over.take(limit as usize).map(|(_, key)| key.clone()).collect();
        for key in over {
            self.reserve(&key, None);
        }
    }

    /// Counts the rows of a lease, of which one was added, removed or changed.
    fn count(&mut self, lease: &LeaseName, was_held: bool, is_held: bool) {
        match (self.counts.change(lease), was_held, is_held) {
            (Some(count), false, true) => *count += 1,
            (Some(count), true, false) if *count > 1 => *count -= 1,
            (Some(_), true, false) => drop(self.counts.remove(lease)),
            (None, false, true) => drop(self.counts.insert(lease.clone(), 1)),
            _ => {}
        }
    }

    /// Indexes a grant that an operator has released, or removes it from the index.
    fn index_revoked(&mut self, key: &PlaceKey, row: &LeaseRow, is_held: bool) {
        let Some(revocation) = row.revoked else { return };
        if let Some(limit) = revocation.limit {
            match is_held {
                true => self.limits.insert((limit, key.clone())),
                false => self.limits.remove(&(limit, key.clone())),
            };
        }
        if is_held {
            let grants = self.revoked.entry(row.tenure.clone()).or_default();
            grants.insert(key.clone(), revocation.revision);
        } else if let Some(grants) = self.revoked.get_mut(&row.tenure) {
            grants.remove(key);
            if grants.is_empty() {
                self.revoked.remove(&row.tenure);
            }
        }
    }

    /// Whether a beat of this tenure must take a step, because an operator released one of its leases: the beat shows
    /// that the holder has noticed, or the reply must not leave before that release is durable.
    pub(super) fn needs_step(&self, tenure: &TenureId, is_noticed: bool, durable: Revision) -> bool {
        let grants = self.revoked.get(tenure);
        grants.is_some_and(|grants| is_noticed || grants.values().any(|revision| durable < *revision))
    }
}

impl GroupModel {
    /// Sets the holder of a place, or frees it.
    pub(super) fn set_lease(&mut self, key: &PlaceKey, row: Option<LeaseRow>) {
        let row = row.map(|row| LeaseRow {
            tenure: self.own_name(&row.tenure),
            ..row
        });
        let tenure = row.as_ref().map(|row| row.tenure.clone());
        let indexed = row.as_ref().filter(|row| row.revoked.is_some()).cloned();
        let before = self.leases.table.set(key.clone(), row);
        if let Some(before) = &before {
            self.leases.index_revoked(key, before, false);
        }
        self.leases.count(&key.0, before.is_some(), tenure.is_some());
        if let Some(row) = indexed {
            self.leases.index_revoked(key, &row, true);
        }
        if tenure.is_none() {
            self.leases.queue.wake(&key.0, StoreTime::ZERO);
        }
        let before = before.map(|before| before.tenure);
        if before == tenure {
            return;
        }
        if let Some(before) = before {
            self.held.drop_lease(before, key);
        }
        if let Some(tenure) = tenure {
            self.held.add_lease(tenure, key);
        }
    }

    /// The time until another member can acquire the leases of this tenure, if it sends no further beat. The process of
    /// a superseded or expelled tenure may still run; any other ended tenure has left or is past its end.
    pub(super) fn free_in(&self, tenure: &TenureId, resumed_at: StoreTime, now: StoreTime) -> Duration {
        if let Some(live) = self.current(tenure) {
            return self.end_time(live, resumed_at, now).since(now);
        }
        match self.ended.get(tenure) {
            Some(record) if record.may_still_run() => {
                end_of(record.end, record.end.since(record.at), resumed_at, now).since(now)
            }
            _ => Duration::ZERO,
        }
    }

    /// [`Self::free_in`] for one grant, which an operator may have released.
    fn grant_free_in(&self, row: &LeaseRow, resumed_at: StoreTime, now: StoreTime) -> Duration {
        let end = self.free_in(&row.tenure, resumed_at, now);
        let limit = row.revoked.and_then(|revocation| revocation.limit);
        limit.map_or(end, |limit| end.min(limit.since(now)))
    }

    /// Records a new revision of a living tenure's holdings.
    pub(super) fn revise(&mut self, tenure: &TenureId, revision: Revision) {
        self.lives.revise(tenure, revision);
    }

    pub(super) fn revision_of(&self, tenure: &TenureId) -> Revision {
        self.current(tenure).map_or(Revision::NONE, |live| live.revision)
    }
}
