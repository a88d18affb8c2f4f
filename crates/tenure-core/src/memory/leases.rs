//! Leases, on one group.

use super::decide::Decide;
use super::group::GroupModel;
use crate::error::Result;
use crate::event::EventKind;
use crate::id::{LeaseName, MemberId, TenureId};
use crate::lease::{
    Acquire, AcquireOutcome, Acquired, GivenUp, Lease, LeaseOf, RESERVATION, ReleaseLeases, ReleaseOutcome, Token,
};
use crate::membership::Revision;
use crate::settling::end_of;
use crate::store::Call;
use crate::time::StoreTime;

impl Decide<Acquire> for GroupModel {
    /// Asks for leases. A tenure that is met past its end is ended even though the call fails.
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
            expires_in: self.free_in(tenure, self.resumed_at, now),
            revision: self.revision_of(tenure),
            before,
            as_of: now,
        })
    }
}

impl GroupModel {
    fn acquire_one(&mut self, tenure: &TenureId, lease: &LeaseName, now: StoreTime) -> Result<AcquireOutcome> {
        let before = self.leases.get(lease).cloned();
        if let Some((holder, token)) = &before {
            if holder == tenure {
                return Ok(AcquireOutcome::Kept { token: *token });
            }
            self.end_if_past(holder, now);
            let free_in = self.free_in(holder, self.resumed_at, now);
            if self.current(holder).is_some() || !free_in.is_zero() {
                return Ok(AcquireOutcome::Held {
                    by: holder.clone(),
                    free_in,
                });
            }
        }
        if let Some((to, until)) = self.reserved.get(lease).filter(|(_, until)| now < *until)
            && to != tenure.member()
        {
            return Ok(AcquireOutcome::Reserved {
                to: to.clone(),
                free_in: until.since(now),
            });
        }
        if let Some(unsettled) = self.unsettled.filter(|unsettled| now < unsettled.until) {
            return Ok(AcquireOutcome::Unsettled {
                retry_in: unsettled.until.since(now),
                cause: unsettled.cause,
            });
        }
        let token = Token::new(self.next_number(now))?;
        let from = before.map(|(holder, _)| holder);
        if let Some(holder) = &from {
            self.drop_lease(holder, lease);
        }
        self.reserved.remove(lease);
        self.leases.insert(lease.clone(), (tenure.clone(), token));
        self.leased.entry(tenure.clone()).or_default().insert(lease.clone());
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

    /// How long until somebody else can have what this tenure holds, if it is not heard of again. An ended tenure that
    /// was superseded or expelled may still be running; the others have said themselves that it is over, or are past
    /// their end.
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
    /// Gives leases up.
    fn step(&mut self, ask: &ReleaseLeases, call: Call, now: StoreTime) -> Result<GivenUp> {
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
        Ok(GivenUp {
            outcomes: outcomes?,
            revision: self.revision_of(tenure),
            before,
            as_of: now,
        })
    }
}

impl GroupModel {
    /// Whether a member has a living tenure. One past its end is ended.
    fn lives(&mut self, member: &MemberId, now: StoreTime) -> bool {
        let Some(live) = self.members.get(member) else {
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
        match self.leases.get(lease) {
            None => return (ReleaseOutcome::Released, false),
            Some((holder, held)) if holder != tenure || *held != token => {
                return (ReleaseOutcome::NotHolder { by: holder.clone() }, false);
            }
            Some(_) => {}
        }
        self.leases.remove(lease);
        self.drop_lease(tenure, lease);
        if let Some(heir) = heir {
            self.reserved.insert(lease.clone(), (heir.clone(), now + RESERVATION));
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

    /// Takes a lease away from a tenure; an ended one that has nothing left needs no more work.
    pub(super) fn drop_lease(&mut self, tenure: &TenureId, lease: &LeaseName) {
        let Some(leased) = self.leased.get_mut(tenure) else {
            return;
        };
        leased.remove(lease);
        if leased.is_empty() {
            self.leased.remove(tenure);
        }
        self.note_loss(tenure);
    }

    /// Notes that what a living tenure holds has changed.
    pub(super) fn revise(&mut self, tenure: &TenureId, revision: Revision) {
        if let Some(live) = self.members.get_mut(tenure.member())
            && live.term == tenure.term()
        {
            live.revision = revision;
        }
    }

    pub(super) fn revision_of(&self, tenure: &TenureId) -> Revision {
        self.current(tenure).map_or(Revision::NONE, |live| live.revision)
    }

    /// Removes up to `room` leases of an ended tenure, if its process cannot be running any more. Answers how many, and
    /// when to look again if that is later than now.
    pub(super) fn free_leases_of(
        &mut self,
        tenure: &TenureId,
        room: usize,
        pass: &str,
        now: StoreTime,
    ) -> (u64, Option<StoreTime>) {
        let Some(leased) = self.leased.get(tenure) else {
            return (0, None);
        };
        let wait = self.free_in(tenure, self.resumed_at, now);
        if !wait.is_zero() {
            return (0, Some(now + wait));
        }
        let leases: Vec<LeaseName> = leased.iter().take(room).cloned().collect();
        let reason = self.reason_of(tenure).as_str();
        for lease in &leases {
            let token = self.leases.remove(lease).map(|(_, token)| token);
            self.drop_lease(tenure, lease);
            let event = self.emit(now, EventKind::LeaseReleased);
            event.tenure = Some(tenure.clone());
            event.lease = Some(lease.clone());
            event.token = token;
            event.reason = Some(reason.to_owned());
            event.pass = Some(pass.to_owned());
        }
        (leases.len() as u64, None)
    }

    /// Drops reservations whose time is over.
    pub(super) fn forget_reservations(&mut self, limit: u32, now: StoreTime) {
        let mut over: Vec<_> = self
            .reserved
            .iter()
            .filter(|(_, (_, until))| *until <= now)
            .map(|(lease, (_, until))| (*until, lease.clone()))
            .collect();
        over.sort();
        for (_, lease) in over.into_iter().take(limit as usize) {
            self.reserved.remove(&lease);
        }
    }

    /// Looks one up.
    pub(super) fn lease_of(&self, lease: &LeaseName, now: StoreTime) -> Option<Lease> {
        let (tenure, token) = self.leases.get(lease)?;
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
