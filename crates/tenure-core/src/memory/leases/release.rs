//! Releasing leases: by the holder, by a hand-off, and by the janitor.

use super::PlaceKey;
use crate::error::Result;
use crate::event::EventKind;
use crate::id::{LeaseName, MemberId, TenureId};
use crate::lease::{RESERVATION, ReleaseLeases, ReleaseOutcome, ReleasedLeases, Token};
use crate::membership::Revision;
use crate::memory::GroupModel;
use crate::memory::decide::Decide;
use crate::memory::rows::ReservedRow;
use crate::store::Call;
use crate::time::StoreTime;

impl Decide<ReleaseLeases> for GroupModel {
    /// Releases leases.
    fn step(&mut self, ask: &ReleaseLeases, call: Call, now: StoreTime) -> Result<ReleasedLeases> {
        let ReleaseLeases {
            tenure,
            leases,
            to,
            seen,
        } = ask;
        self.open(now, call)?;
        let before = self.revision_of(tenure);
        let outcomes = self.require_alive(tenure, now).map(|()| {
            self.compare_revisions(*seen, before, now);
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
        self.serve_waiting(now);
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
        let held = self.grant_of(tenure, lease);
        let Some((key, row)) = held.filter(|(_, row)| row.token == token) else {
            let own = self.grant_of(tenure, lease).map(|(_, row)| row.tenure.clone());
            let by = own.or_else(|| self.lease_rows(lease).next().map(|(_, row)| row.tenure.clone()));
            let outcome = by.map_or(ReleaseOutcome::Released, |by| ReleaseOutcome::NotHolder { by });
            return (outcome, false);
        };
        if row.revoked.is_some() {
            self.free_revoked(&key, now);
            return (ReleaseOutcome::Released, true);
        }
        let (holders, generation) = (row.holders, row.generation);
        let reason = if heir.is_some() { "handed_off" } else { "released" };
        self.free_place(&key, reason, |event| event.to = heir.cloned(), now);
        let Some(heir) = heir else {
            return (ReleaseOutcome::Released, true);
        };
        let row = ReservedRow {
            member: heir.clone(),
            until: now + RESERVATION,
            holders,
            generation,
        };
        self.leases.reserve(&key, Some(row));
        self.serve_successor(&key, heir, now);
        (ReleaseOutcome::Reserved, true)
    }

    /// Frees a place, with its event.
    pub(super) fn free_place(
        &mut self,
        key: &PlaceKey,
        reason: &str,
        more: impl FnOnce(&mut crate::event::Event),
        now: StoreTime,
    ) {
        let Some(row) = self.leases.table.get(key).cloned() else {
            return;
        };
        self.set_lease(key, None);
        let event = self.emit(now, EventKind::LeaseReleased);
        event.tenure = Some(row.tenure);
        event.lease = Some(key.0.clone());
        event.token = Some(row.token);
        event.place = Some(key.1).filter(|_| !row.holders.is_one());
        event.reason = Some(reason.to_owned());
        more(event);
    }

    /// Removes up to `room` leases of an ended tenure, once its process can no longer run. Returns how many, and when
    /// to retry if that is later.
    pub(in crate::memory) fn free_leases_of(
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
        let places: Vec<PlaceKey> = self.held.places(tenure, None).take(room).collect();
        let reason = self.reason_of(tenure).as_str();
        for key in &places {
            self.free_place(key, reason, |event| event.pass = Some(pass.to_owned()), now);
        }
        self.note_loss(tenure);
        (places.len() as u64, None)
    }
}
