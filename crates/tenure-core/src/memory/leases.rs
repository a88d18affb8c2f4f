//! The leases of one group.

use std::collections::BTreeSet;

use super::decide::Decide;
use super::group::GroupModel;
use super::rows::{LeaseRow, ReservedRow};
use super::table::Table;
use crate::error::Result;
use crate::event::EventKind;
use crate::id::{LeaseName, MemberId, TenureId};
use crate::lease::{
    Acquire, AcquireOutcome, Acquired, Lease, LeaseOf, RESERVATION, ReleaseLeases, ReleaseOutcome, ReleasedLeases,
    Token,
};
use crate::membership::Revision;
use crate::settling::end_of;
use crate::store::Call;
use crate::time::StoreTime;

/// Held and reserved leases.
#[derive(Debug, Default)]
pub(super) struct LeasesModel {
    pub(super) table: Table<LeaseName, LeaseRow>,
    /// Handed-off leases that wait for their successor.
    pub(super) reserved: Table<LeaseName, ReservedRow>,
    reserved_by_time: BTreeSet<(StoreTime, LeaseName)>,
}

impl LeasesModel {
    /// Reserves a lease for a member, or removes the reservation.
    pub(super) fn reserve(&mut self, lease: &LeaseName, row: Option<ReservedRow>) {
        let until = row.as_ref().map(|row| row.until);
        if let Some(before) = self.reserved.set(lease.clone(), row) {
            self.reserved_by_time.remove(&(before.until, lease.clone()));
        }
        if let Some(until) = until {
            self.reserved_by_time.insert((until, lease.clone()));
        }
    }

    /// Drops expired reservations.
    pub(super) fn forget_reservations(&mut self, limit: u32, now: StoreTime) {
        let over = self.reserved_by_time.iter().take_while(|(until, _)| *until <= now);
        let over: Vec<_> = over.take(limit as usize).map(|(_, lease)| lease.clone()).collect();
        for lease in over {
            self.reserve(&lease, None);
        }
    }
}

impl Decide<Acquire> for GroupModel {
    /// Acquires leases. A tenure found past its end is ended even though the call fails.
    fn step(&mut self, Acquire { tenure, leases }: &Acquire, call: Call, now: StoreTime) -> Result<Acquired> {
        self.open(now, call)?;
        let before = self.revision_of(tenure);
        let outcomes = self.require_alive(tenure, now).and_then(|()| {
            leases
                .iter()
                .map(|lease| self.acquire_one(tenure, lease, now))
                .collect()
        });
        self.engage_brake(now);
        Ok(Acquired {
            outcomes: outcomes?,
            expires_in: self.free_in(tenure, self.head().resumed_at, now),
            revision: self.revision_of(tenure),
            before,
            as_of: now,
        })
    }
}

impl GroupModel {
    fn acquire_one(&mut self, tenure: &TenureId, lease: &LeaseName, now: StoreTime) -> Result<AcquireOutcome> {
        let before = self.leases.table.get(lease).cloned();
        if let Some(LeaseRow { tenure: holder, token }) = &before {
            if holder == tenure {
                return Ok(AcquireOutcome::Kept { token: *token });
            }
            self.end_if_past(holder, now);
            let free_in = self.free_in(holder, self.head().resumed_at, now);
            if self.current(holder).is_some() || !free_in.is_zero() {
                return Ok(AcquireOutcome::Held {
                    by: holder.clone(),
                    free_in,
                });
            }
        }
        if let Some(withheld) = self.withheld(tenure, lease, now) {
            return Ok(withheld);
        }
        let token = Token::new(self.next_number(now))?;
        let from = before.map(|before| before.tenure);
        let row = LeaseRow {
            tenure: tenure.clone(),
            token,
        };
        self.set_lease(lease, Some(row));
        if let Some(holder) = &from {
            self.note_loss(holder);
        }
        self.leases.reserve(lease, None);
        self.revise(tenure, Revision(token.get()));
        let reason = from.as_ref().map(|holder| self.reason_of(holder).as_str().to_owned());
        let kind = match from {
            Some(_) => EventKind::LeaseTakenOver,
            None => EventKind::LeaseGranted,
        };
        let event = self.emit(now, kind);
        event.tenure = Some(tenure.clone());
        event.lease = Some(lease.clone());
        event.token = Some(token);
        event.from.clone_from(&from);
        event.reason = reason;
        Ok(AcquireOutcome::Granted { token, from })
    }

    /// Why a free lease is not granted now.
    fn withheld(&self, tenure: &TenureId, lease: &LeaseName, now: StoreTime) -> Option<AcquireOutcome> {
        if let Some(ReservedRow { member: to, until }) = self.leases.reserved.get(lease)
            && now < *until
            && to != tenure.member()
        {
            return Some(AcquireOutcome::Reserved {
                to: to.clone(),
                free_in: until.since(now),
            });
        }
        let unsettled = self.head().unsettled.filter(|unsettled| now < unsettled.until)?;
        Some(AcquireOutcome::Unsettled {
            retry_in: unsettled.until.since(now),
            cause: unsettled.cause,
        })
    }

    /// Sets the holder of a lease, or frees it.
    pub(super) fn set_lease(&mut self, lease: &LeaseName, row: Option<LeaseRow>) {
        let row = row.map(|row| LeaseRow {
            tenure: self.own_name(&row.tenure),
            ..row
        });
        let tenure = row.as_ref().map(|row| row.tenure.clone());
        let before = self.leases.table.set(lease.clone(), row).map(|before| before.tenure);
        if before == tenure {
            return;
        }
        if let Some(before) = before {
            self.held.drop_lease(before, lease.clone());
        }
        if let Some(tenure) = tenure {
            self.held.add_lease(tenure, lease.clone());
        }
    }

    /// The time until another member can acquire the leases of this tenure, if it sends no further beat. The process of
    /// a superseded or expelled tenure may still run; any other ended tenure has left or is past its end.
    pub(super) fn free_in(&self, tenure: &TenureId, resumed_at: StoreTime, now: StoreTime) -> std::time::Duration {
        if let Some(live) = self.current(tenure) {
            return self.end_time(live, resumed_at, now).since(now);
        }
        match self.ended.get(tenure) {
            Some(record) if record.may_still_run() => {
                end_of(record.end, record.end.since(record.at), resumed_at, now).since(now)
            }
            _ => std::time::Duration::ZERO,
        }
    }
}

impl Decide<ReleaseLeases> for GroupModel {
    /// Releases leases.
    fn step(&mut self, ask: &ReleaseLeases, call: Call, now: StoreTime) -> Result<ReleasedLeases> {
        let ReleaseLeases { tenure, leases, to } = ask;
        self.open(now, call)?;
        let before = self.revision_of(tenure);
        let outcomes = self.require_alive(tenure, now).map(|()| {
            let heir = to.as_ref().filter(|to| *to != tenure.member() && self.lives(to, now));
            let outcomes: Vec<_> = leases
                .iter()
                .map(|(lease, token)| self.release_one(tenure, lease, *token, heir, now))
                .collect();
            if outcomes.iter().any(|(_, changed)| *changed) {
                let number = self.next_number(now);
                self.revise(tenure, Revision(number));
            }
            outcomes.into_iter().map(|(outcome, _)| outcome).collect()
        });
        self.engage_brake(now);
        Ok(ReleasedLeases {
            outcomes: outcomes?,
            revision: self.revision_of(tenure),
            before,
            as_of: now,
        })
    }
}

impl GroupModel {
    /// Whether a member has a living tenure. Ends one that is past its end.
    fn lives(&mut self, member: &MemberId, now: StoreTime) -> bool {
        let Some(live) = self.lives.get(member) else {
            return false;
        };
        let tenure = TenureId::new(member.clone(), live.term);
        !self.end_if_past(&tenure, now)
    }

    fn release_one(
        &mut self,
        tenure: &TenureId,
        lease: &LeaseName,
        token: Token,
        heir: Option<&MemberId>,
        now: StoreTime,
    ) -> (ReleaseOutcome, bool) {
        match self.leases.table.get(lease) {
            None => return (ReleaseOutcome::Released, false),
            Some(held) if held.tenure != *tenure || held.token != token => {
                let by = held.tenure.clone();
                return (ReleaseOutcome::NotHolder { by }, false);
            }
            Some(_) => {}
        }
        self.set_lease(lease, None);
        if let Some(heir) = heir {
            let row = ReservedRow {
                member: heir.clone(),
                until: now + RESERVATION,
            };
            self.leases.reserve(lease, Some(row));
        }
        let reason = if heir.is_some() { "handed_off" } else { "released" };
        let event = self.emit(now, EventKind::LeaseReleased);
        event.tenure = Some(tenure.clone());
        event.lease = Some(lease.clone());
        event.token = Some(token);
        event.reason = Some(reason.to_owned());
        event.to = heir.cloned();
        let outcome = match heir {
            Some(_) => ReleaseOutcome::Reserved,
            None => ReleaseOutcome::Released,
        };
        (outcome, true)
    }

    /// Records a new revision of a living tenure's holdings.
    pub(super) fn revise(&mut self, tenure: &TenureId, revision: Revision) {
        self.lives.revise(tenure, revision);
    }

    pub(super) fn revision_of(&self, tenure: &TenureId) -> Revision {
        self.current(tenure).map_or(Revision::NONE, |live| live.revision)
    }

    /// Removes up to `room` leases of an ended tenure, once its process can no longer run. Returns how many, and when
    /// to retry if that is later.
    pub(super) fn free_leases_of(
        &mut self,
        tenure: &TenureId,
        room: usize,
        pass: &str,
        now: StoreTime,
    ) -> (u64, Option<StoreTime>) {
        if self.held.of(tenure).leases == 0 {
            return (0, None);
        }
        let wait = self.free_in(tenure, self.head().resumed_at, now);
        if !wait.is_zero() {
            return (0, Some(now + wait));
        }
        let leases: Vec<LeaseName> = self.held.leases(tenure, None).take(room).cloned().collect();
        let reason = self.reason_of(tenure).as_str();
        for lease in &leases {
            let token = self.leases.table.get(lease).map(|row| row.token);
            self.set_lease(lease, None);
            let event = self.emit(now, EventKind::LeaseReleased);
            event.tenure = Some(tenure.clone());
            event.lease = Some(lease.clone());
            event.token = token;
            event.reason = Some(reason.to_owned());
            event.pass = Some(pass.to_owned());
        }
        self.note_loss(tenure);
        (leases.len() as u64, None)
    }

    /// Reads a lease.
    pub(super) fn lease_of(&self, lease: &LeaseName, now: StoreTime) -> Option<Lease> {
        let LeaseRow { tenure, token } = self.leases.table.get(lease)?;
        let resumed_at = self.resumed_for_reading(now);
        Some(Lease {
            lease: lease.clone(),
            holder: tenure.member().clone(),
            tenure: tenure.clone(),
            token: *token,
            alive: self.is_alive(tenure, resumed_at, now),
            expires_in: self.free_in(tenure, resumed_at, now),
        })
    }
}

impl Decide<LeaseOf> for GroupModel {
    fn read(&self, ask: &LeaseOf, now: StoreTime) -> Result<Option<Lease>> {
        Ok(self.lease_of(&ask.lease, now))
    }
}
