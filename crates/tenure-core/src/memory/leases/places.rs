//! The taken places of a lease.

use std::time::Duration;

use super::PlaceKey;
use crate::id::{LeaseName, MemberId, TenureId};
use crate::lease::{AcquireOutcome, Holders, Place, Token};
use crate::memory::GroupModel;
use crate::memory::rows::{LeaseRow, ReservedRow};
use crate::time::StoreTime;

/// A taken place.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) place: Place,
    /// The number of holders of the lease.
    pub(super) holders: Holders,
    pub(super) generation: Token,
    pub(super) by: TakenBy,
    pub(super) free_in: Duration,
}

/// What takes a place.
#[derive(Debug, Clone)]
pub(super) enum TakenBy {
    /// A living holder, or an ended one whose process may still run.
    Holder(TenureId),
    /// A reservation for a successor.
    Successor(MemberId),
}

/// The taken places of a lease, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Places(Vec<Taken>);

impl Places {
    /// The number of holders; `None` if no place is taken.
    pub(super) fn holders(&self) -> Option<Holders> {
        self.0.first().map(|taken| taken.holders)
    }

    /// The generation of the lease; `None` if no place is taken.
    pub(super) fn generation(&self) -> Option<Token> {
        self.0.first().map(|taken| taken.generation)
    }

    /// The place for a member: the first one reserved for it, else the first one that is not taken.
    pub(super) fn place_for(&self, member: &MemberId, holders: Holders) -> Option<(Place, bool)> {
        let is_own = |taken: &&Taken| matches!(&taken.by, TakenBy::Successor(to) if to == member);
        if let Some(taken) = self.0.iter().find(is_own) {
            return Some((taken.place, true));
        }
        let mut taken = self.0.iter().map(|taken| taken.place).peekable();
        let free = holders.places().find(|place| taken.next_if_eq(place).is_none());
        free.map(|place| (place, false))
    }

    /// The place that is free first, as the reason of a refusal.
    pub(super) fn refusal(&self) -> Option<AcquireOutcome> {
        let first = self.0.iter().min_by_key(|taken| (taken.free_in, taken.place))?;
        let free_in = first.free_in;
        Some(match first.by.clone() {
            TakenBy::Holder(by) => AcquireOutcome::Held { by, free_in },
            TakenBy::Successor(to) => AcquireOutcome::Reserved { to, free_in },
        })
    }

    /// The time until the first taken place is free.
    pub(super) fn free_in(&self) -> Option<Duration> {
        self.0.iter().map(|taken| taken.free_in).min()
    }

    /// The number of taken places.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}

impl GroupModel {
    /// The rows of a lease, by place. A read first looks at their count, which tracks their changes.
    pub(super) fn lease_rows<'a>(&'a self, lease: &LeaseName) -> impl Iterator<Item = (&'a PlaceKey, &'a LeaseRow)> {
        self.leases.table.range_unseen(all_places(lease))
    }

    /// The reservations of a lease that are not past their time, by place, with how long each still counts.
    fn reservations<'a>(
        &'a self,
        lease: &LeaseName,
        resumed_at: StoreTime,
        now: StoreTime,
    ) -> impl Iterator<Item = (&'a PlaceKey, &'a ReservedRow, Duration)> {
        let rows = self.leases.reserved.range_unseen(all_places(lease));
        let running = rows.filter(move |(_, row)| now < row.until);
        running.map(move |(key, row)| (key, row, self.reserved_for(row, resumed_at, now)))
    }

    /// A reservation ends with its time, or before that with the tenure of its member.
    fn reserved_for(&self, row: &ReservedRow, resumed_at: StoreTime, now: StoreTime) -> Duration {
        let successor = self.lives.get(&row.member);
        let end = successor.map_or(StoreTime::ZERO, |live| self.end_time(live, resumed_at, now));
        row.until.min(end).since(now)
    }

    /// Ends the holders of a lease that are past their end, releases what an operator released long enough ago, and drops
    /// reservations for members without a living tenure: they do not come back when such a member joins again.
    pub(super) fn refresh_lease(&mut self, lease: &LeaseName, now: StoreTime) {
        let rows: Vec<_> = self
            .lease_rows(lease)
            .map(|(key, row)| (key.clone(), row.clone()))
            .collect();
        for (key, row) in rows {
            self.end_if_past(&row.tenure, now);
            let limit = row.revoked.and_then(|revocation| revocation.limit);
            if limit.is_some_and(|limit| limit <= now) {
                self.free_revoked(&key, now);
            }
        }
        let over = self.reservations(lease, self.head().resumed_at, now);
        let over: Vec<_> = over
            .filter(|(.., left)| left.is_zero())
            .map(|(key, ..)| key.clone())
            .collect();
        for key in over {
            self.leases.reserve(&key, None);
        }
    }

    /// The taken places of a lease.
    pub(super) fn places_of(&self, lease: &LeaseName, resumed_at: StoreTime, now: StoreTime) -> Places {
        let held = self.lease_rows(lease).map(|((_, place), row)| Taken {
            place: *place,
            holders: row.holders,
            generation: row.generation,
            by: TakenBy::Holder(row.tenure.clone()),
            free_in: self.grant_free_in(row, resumed_at, now),
        });
        let mut taken: Vec<Taken> = held.filter(|taken| !taken.free_in.is_zero()).collect();
        let reserved = self
            .reservations(lease, resumed_at, now)
            .map(|((_, place), row, free_in)| Taken {
                place: *place,
                holders: row.holders,
                generation: row.generation,
                by: TakenBy::Successor(row.member.clone()),
                free_in,
            });
        taken.extend(reserved.filter(|taken| !taken.free_in.is_zero()));
        // A holder comes before a reservation of the same place.
        taken.sort_by_key(|taken| taken.place);
        taken.dedup_by_key(|taken| taken.place);
        Places(taken)
    }

    /// The place that a tenure holds.
    pub(super) fn grant_of(&self, tenure: &TenureId, lease: &LeaseName) -> Option<(PlaceKey, &LeaseRow)> {
        let key = (lease.clone(), self.held.place_of(tenure, lease)?);
        let row = self.leases.table.get(&key)?;
        Some((key, row))
    }
}

/// All places of a lease.
pub(in crate::memory) fn all_places(lease: &LeaseName) -> std::ops::RangeInclusive<PlaceKey> {
    (lease.clone(), Place::FIRST)..=(lease.clone(), Place::LAST)
}
