//! The release of a lease by an operator.

use super::PlaceKey;
use crate::error::{Error, ErrorKind, Result};
use crate::event::EventKind;
use crate::id::TenureId;
use crate::lease::{FreeWhen, RevokeLease, RevokeOf, Revoked};
use crate::membership::Revision;
use crate::memory::GroupModel;
use crate::memory::decide::Decide;
use crate::memory::rows::{LeaseRow, Revocation};
use crate::store::Call;
use crate::time::StoreTime;

impl Decide<RevokeLease> for GroupModel {
    fn step(&mut self, ask: &RevokeLease, call: Call, now: StoreTime) -> Result<Revoked> {
        self.open(now, call)?;
        self.refresh_lease(&ask.lease, now);
        let revoked = self.named_grant(ask, now).map(|(key, row)| self.revoke(&key, row, now));
        self.serve_waiting(now);
        self.engage_brake(now);
        revoked
    }
}

impl GroupModel {
    /// The grant that an operator names. A grant that is free already is none.
    fn named_grant(&self, RevokeLease { lease, of }: &RevokeLease, now: StoreTime) -> Result<(PlaceKey, LeaseRow)> {
        let resumed_at = self.head().resumed_at;
        let rows = self.lease_rows(lease);
        let taken = rows.filter(|(_, row)| !self.grant_free_in(row, resumed_at, now).is_zero());
        let taken: Vec<(&PlaceKey, &LeaseRow)> = taken.collect();
        let Some((_, first)) = taken.first() else {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("the lease {lease} has no holder"),
            ));
        };
        let named = match of {
            RevokeOf::Any if taken.len() > 1 => {
                return Err(Error::invalid(format!(
                    "the lease {lease} has {} holders; name one by its member or token",
                    taken.len()
                )));
            }
            RevokeOf::Any => taken.first(),
            RevokeOf::Token(token) => taken.iter().find(|(_, row)| row.token == *token),
            // An earlier tenure of the member may hold another place until its last deadline.
            RevokeOf::Holder(member) => {
                let held = taken.iter().filter(|(_, row)| row.tenure.member() == member);
                held.max_by_key(|(_, row)| (self.current(&row.tenure).is_some(), row.token))
            }
        };
        let not_holder = || {
            let message = format!("the lease {lease} is not held by the named member or token");
            Error::new(ErrorKind::NotOwner, message).with_holder(first.tenure.clone())
        };
        let (key, row) = named.ok_or_else(not_holder)?;
        Ok(((*key).clone(), (*row).clone()))
    }

    /// Marks a grant as released. That of an ended tenure needs no mark.
    fn revoke(&mut self, key: &PlaceKey, mut row: LeaseRow, now: StoreTime) -> Revoked {
        let live = self
            .current(&row.tenure)
            .map(|live| (live.told, self.end_now(live, now)));
        if let (None, Some((told, end))) = (row.revoked, live) {
            let revision = Revision(self.next_number(now));
            row.revoked = Some(Revocation {
                revision,
                limit: told.then_some(end),
            });
            self.set_lease(key, Some(row.clone()));
            self.revise(&row.tenure, revision);
            let event = self.emit(now, EventKind::LeaseRevoked);
            event.tenure = Some(row.tenure.clone());
            event.lease = Some(key.0.clone());
            event.token = Some(row.token);
            event.place = Some(key.1).filter(|_| !row.holders.is_one());
            event.reason = Some("operator".to_owned());
        }
        let can_notice = row.revoked.is_some_and(|revocation| revocation.limit.is_some());
        Revoked {
            lease: key.0.clone(),
            holder: row.tenure.member().clone(),
            token: row.token,
            free_when: match can_notice {
                true => FreeWhen::Noticed,
                false => FreeWhen::TenureEnds,
            },
            free_in: self.grant_free_in(&row, self.head().resumed_at, now),
            tenure: row.tenure,
        }
    }

    /// Frees a place whose holder has noticed that an operator released it, or can no longer act under it.
    pub(super) fn free_revoked(&mut self, key: &PlaceKey, now: StoreTime) {
        let Some(tenure) = self.leases.table.get(key).map(|row| row.tenure.clone()) else {
            return;
        };
        self.free_place(key, "revoked", |_| {}, now);
        self.note_loss(&tenure);
    }

    /// Frees what an operator released: a beat named the revision of the tenure, so the holder has noticed.
    pub(in crate::memory) fn note_noticed(&mut self, tenure: &TenureId, now: StoreTime) {
        let grants = self.leases.revoked.get(tenure).into_iter().flatten();
        let noticed: Vec<PlaceKey> = grants.map(|(key, _)| key.clone()).collect();
        for key in noticed {
            self.free_revoked(&key, now);
        }
    }

    /// Frees what an operator released, where the holder's deadline at the release has passed.
    pub(in crate::memory) fn free_overdue(&mut self, limit: u32, now: StoreTime) {
        let due = self.leases.limits.iter().take_while(|(at, _)| *at <= now);
        let due: Vec<PlaceKey> = due.take(limit as usize).map(|(_, key)| key.clone()).collect();
        for key in due {
            self.free_revoked(&key, now);
        }
    }
}
