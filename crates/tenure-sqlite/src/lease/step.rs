//! The steps on leases: acquire, release, hand off, and what the janitor does with those of the ended.

use std::collections::BTreeSet;
use std::time::Duration;

use rusqlite::params;
use tenure_core::event::EventKind;
use tenure_core::lease::{AcquireOutcome, Acquired, GivenUp, RESERVATION, ReleaseOutcome, Token};
use tenure_core::membership::{EndReason, Revision};
use tenure_core::{LeaseName, MemberId, StoreTime, TenureId};

use crate::ended::Ended;
use crate::error::Cause;
use crate::event::Draft;
use crate::sql::{instant, number, read_instant, read_name, read_token, statements};
use crate::step::{Answer, Step};

statements! { "lease.sql":
    HOLDER = "holder",
    UPSERT = "upsert",
    DELETE = "delete",
    HELD = "held",
    RESERVE = "reserve",
    RESERVED = "reserved",
    UNRESERVE = "unreserve",
    FORGET_RESERVED = "forget_reserved",
}

/// What stands between a lease and the one who asks for it.
enum Found {
    /// An answer other than a grant.
    Refused(AcquireOutcome),
    /// It is to be had, from this ended tenure if one still has it.
    Free(Option<(TenureId, EndReason)>),
}

impl Step<'_> {
    /// Asks for one part of the leases.
    pub(super) fn acquire(&mut self, tenure: &TenureId, leases: &[LeaseName]) -> Answer<Acquired> {
        if let Err(ended) = self.require_alive(tenure)? {
            self.engage_brake()?;
            return Ok(Err(ended));
        }
        let (text, before) = (tenure.to_string(), self.revision_of(tenure));
        let mut outcomes = Vec::with_capacity(leases.len());
        let (mut last, mut losers) = (None, BTreeSet::new());
        for lease in leases {
            let outcome = match self.find(tenure, lease)? {
                Found::Refused(outcome) => outcome,
                Found::Free(from) => {
                    let token = self.grant(tenure, &text, lease, from.as_ref())?;
                    last = Some(token);
                    let from = from.map(|(holder, _)| holder);
                    losers.extend(from.as_ref().map(TenureId::to_string));
                    AcquireOutcome::Granted { token, from }
                }
            };
            outcomes.push(outcome);
        }
        for loser in losers {
            self.strike_if_empty(&loser)?;
        }
        if let Some(token) = last {
            self.revise(tenure, Revision(token.get()))?;
        }
        self.engage_brake()?;
        Ok(Ok(Acquired {
            outcomes,
            expires_in: self.free_in(tenure)?,
            revision: self.revision_of(tenure),
            before,
            as_of: self.now,
        }))
    }

    /// Looks at holder, reservation and grace, in this order.
    fn find(&mut self, tenure: &TenureId, lease: &LeaseName) -> Result<Found, Cause> {
        let mut from = None;
        if let Some((holder, token)) = self.holder_of(lease)? {
            if holder == *tenure {
                return Ok(Found::Refused(AcquireOutcome::Kept { token }));
            }
            self.end_if_past(&holder)?;
            let free_in = self.free_in(&holder)?;
            if self.is_current(&holder) || !free_in.is_zero() {
                return Ok(Found::Refused(AcquireOutcome::Held { by: holder, free_in }));
            }
            let reason = self.reason_of(&holder)?;
            from = Some((holder, reason));
        }
        let reserved = self.reservation_of(lease)?.filter(|(_, until)| self.now < *until);
        if let Some((to, until)) = reserved.filter(|(to, _)| to != tenure.member()) {
            let free_in = until.since(self.now);
            return Ok(Found::Refused(AcquireOutcome::Reserved { to, free_in }));
        }
        let unsettled = self.meta.unsettled.filter(|unsettled| self.now < unsettled.until);
        Ok(match unsettled {
            Some(unsettled) => Found::Refused(AcquireOutcome::Unsettled {
                retry_in: unsettled.until.since(self.now),
                cause: unsettled.cause,
            }),
            None => Found::Free(from),
        })
    }

    /// Gives a lease out, under the next number of the group.
    fn grant(
        &mut self,
        tenure: &TenureId,
        text: &str,
        lease: &LeaseName,
        from: Option<&(TenureId, EndReason)>,
    ) -> Result<Token, Cause> {
        let token = Token::new(self.next_number()).map_err(|error| Cause::Strange(error.to_string()))?;
        let mut upsert = self.sql.prepare_cached(UPSERT)?;
        upsert.execute(params![self.id, lease.as_str(), text, number(token.get())])?;
        self.sql
            .prepare_cached(UNRESERVE)?
            .execute(params![self.id, lease.as_str()])?;
        self.meta.leases += u64::from(from.is_none());
        let event = match from {
            None => Draft::new(EventKind::LeaseGranted),
            Some((holder, reason)) => Draft::new(EventKind::LeaseTakenOver)
                .from(holder)
                .because(reason.as_str()),
        };
        self.emit(event.of(tenure).lease(lease).token(token))?;
        Ok(token)
    }

    /// How long until somebody else can have what a tenure leased, if it is not heard of again.
    fn free_in(&self, tenure: &TenureId) -> Result<Duration, Cause> {
        let (resumed_at, now) = (self.meta.resumed_at, self.now);
        let current = self.live.lock().head(tenure.member());
        if let Some(entry) = current.filter(|entry| entry.term == tenure.term()) {
            return Ok(entry.end(resumed_at, now).since(now));
        }
        let record = self.record_of(tenure)?;
        Ok(record.map_or(Duration::ZERO, |record| record.free_in(resumed_at, now)))
    }

    fn holder_of(&self, lease: &LeaseName) -> Result<Option<(TenureId, Token)>, Cause> {
        let mut look = self.sql.prepare_cached(HOLDER)?;
        let mut rows = look.query(params![self.id, lease.as_str()])?;
        let read = |row| Ok((read_name(row, 0)?, read_token(row, 1)?));
        rows.next()?.map(read).transpose()
    }

    fn reservation_of(&self, lease: &LeaseName) -> Result<Option<(MemberId, StoreTime)>, Cause> {
        let mut look = self.sql.prepare_cached(RESERVED)?;
        let mut rows = look.query(params![self.id, lease.as_str()])?;
        let read = |row| Ok((read_name(row, 0)?, read_instant(row, 1)?));
        rows.next()?.map(read).transpose()
    }

    /// Gives one part of the leases up.
    pub(super) fn release_leases(
        &mut self,
        tenure: &TenureId,
        leases: &[(LeaseName, Token)],
        to: Option<&MemberId>,
    ) -> Answer<GivenUp> {
        if let Err(ended) = self.require_alive(tenure)? {
            self.engage_brake()?;
            return Ok(Err(ended));
        }
        let heir = match to.filter(|to| *to != tenure.member()) {
            Some(to) if self.lives(to)? => Some(to),
            _ => None,
        };
        let (mut outcomes, before) = (Vec::with_capacity(leases.len()), self.revision_of(tenure));
        let mut changed = false;
        for (lease, token) in leases {
            let outcome = match self.holder_of(lease)? {
                None => ReleaseOutcome::Released,
                Some((holder, held)) if holder != *tenure || held != *token => ReleaseOutcome::NotHolder { by: holder },
                Some(_) => {
                    changed = true;
                    self.give_up(tenure, lease, *token, heir)?
                }
            };
            outcomes.push(outcome);
        }
        if changed {
            let number = self.next_number();
            self.revise(tenure, Revision(number))?;
        }
        self.engage_brake()?;
        Ok(Ok(GivenUp {
            outcomes,
            revision: self.revision_of(tenure),
            before,
            as_of: self.now,
        }))
    }

    /// Whether a member has a living tenure. One past its end is ended.
    fn lives(&mut self, member: &MemberId) -> Result<bool, Cause> {
        let current = self.live.lock().head(member);
        match current {
            Some(entry) => Ok(!self.end_if_past(&TenureId::new(member.clone(), entry.term))?),
            None => Ok(false),
        }
    }

    /// Frees a lease, or keeps it for its heir.
    fn give_up(
        &mut self,
        tenure: &TenureId,
        lease: &LeaseName,
        token: Token,
        heir: Option<&MemberId>,
    ) -> Result<ReleaseOutcome, Cause> {
        self.remove_lease(&tenure.to_string(), lease, token)?;
        let event = Draft::new(EventKind::LeaseReleased)
            .of(tenure)
            .lease(lease)
            .token(token);
        let Some(heir) = heir else {
            self.emit(event.because("released"))?;
            return Ok(ReleaseOutcome::Released);
        };
        self.sql.prepare_cached(RESERVE)?.execute(params![
            self.id,
            lease.as_str(),
            heir.as_str(),
            instant(self.now + RESERVATION)
        ])?;
        self.emit(event.because("handed_off").to(heir))?;
        Ok(ReleaseOutcome::Reserved)
    }

    /// Compare-and-delete.
    fn remove_lease(&mut self, tenure: &str, lease: &LeaseName, token: Token) -> Result<(), Cause> {
        let mut delete = self.sql.prepare_cached(DELETE)?;
        let removed = delete.execute(params![self.id, lease.as_str(), tenure, number(token.get())])?;
        drop(delete);
        self.meta.leases = self.meta.leases.saturating_sub(removed as u64);
        Ok(())
    }

    /// Removes up to `room` leases of an ended tenure, in order, if its process cannot be running any more. Answers how
    /// many, and when to look again if that is later than now.
    pub(crate) fn evict_leases(
        &mut self,
        tenure: &TenureId,
        ended: Ended,
        room: u32,
        pass: &str,
    ) -> Result<(u32, Option<StoreTime>), Cause> {
        let wait = ended.free_in(self.meta.resumed_at, self.now);
        if !wait.is_zero() {
            return Ok((0, Some(self.now + wait)));
        }
        let text = tenure.to_string();
        let mut removed = 0;
        for (lease, token) in self.leased_by(&text, room)? {
            self.remove_lease(&text, &lease, token)?;
            let event = Draft::new(EventKind::LeaseReleased)
                .of(tenure)
                .lease(&lease)
                .token(token);
            self.emit(event.because(ended.reason.as_str()).in_pass(pass))?;
            removed += 1;
        }
        Ok((removed, None))
    }

    fn leased_by(&self, tenure: &str, limit: u32) -> Result<Vec<(LeaseName, Token)>, Cause> {
        let mut select = self.sql.prepare_cached(HELD)?;
        let mut rows = select.query(params![self.id, tenure, limit])?;
        let mut leases = Vec::new();
        while let Some(row) = rows.next()? {
            leases.push((read_name(row, 0)?, read_token(row, 1)?));
        }
        Ok(leases)
    }

    /// Drops reservations whose time is over.
    pub(crate) fn forget_reservations(&mut self, limit: u32) -> Result<(), Cause> {
        self.sql
            .prepare_cached(FORGET_RESERVED)?
            .execute(params![self.id, instant(self.now), limit])?;
        Ok(())
    }
}
