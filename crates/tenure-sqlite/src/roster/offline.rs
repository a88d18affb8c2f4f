//! Ended tenures that the ledger has to follow: a durable list, from the step that ended one to the word that it has.

use rusqlite::{OptionalExtension, Row, params};
use tenure_core::membership::EndReason;
use tenure_core::roster::{Offlined, Pending};
use tenure_core::sweep::BURST;
use tenure_core::{ProviderId, StoreTime, TenureId};

use crate::error::Cause;
use crate::live::Entry;
use crate::sql::{instant, read_instant, read_instant_or_none, read_name, statements};
use crate::step::{Answer, Step};

statements! { "roster.sql":
    NOTE_OFFLINE = "note_offline",
    IS_OFFLINED = "is_offlined",
    OFFLINED = "offlined",
    OFFLINE_DONE = "offline_done",
    FOLLOWED = "followed",
}

/// What is written of an end.
pub(super) struct Noted {
    /// When the store ended it.
    pub(super) ended_at: StoreTime,
    /// When that was for the ledger.
    pub(super) at: StoreTime,
    pub(super) reason: EndReason,
    pub(super) heard_at: Option<StoreTime>,
}

/// Reads an entry of the list, with the time at which the store ended it.
pub(super) fn read_offlined(row: &Row<'_>) -> Result<(StoreTime, Offlined), Cause> {
    let reason: String = row.get(3)?;
    let offlined = Offlined {
        tenure: read_name(row, 0)?,
        at: read_instant(row, 2)?,
        reason: EndReason::parse(&reason).ok_or_else(|| Cause::Strange(format!("the reason {reason:?}")))?,
        heard_at: read_instant_or_none(row, 4)?,
    };
    Ok((read_instant(row, 1)?, offlined))
}

impl Step<'_> {
    /// A tenure has ended: if a row names it, the ledger has to follow.
    pub(crate) fn note_offline(&mut self, tenure: &TenureId, entry: &Entry, reason: EndReason) -> Result<(), Cause> {
        let provider = ProviderId::from(tenure.member());
        let table = self.live.lock();
        let is_named = table
            .roster
            .head(&provider)
            .is_some_and(|head| head.online.as_ref() == Some(tenure));
        drop(table);
        if !is_named {
            return Ok(());
        }
        self.meta.roster.changes += 1;
        let noted = Noted {
            ended_at: self.now,
            at: entry.end(self.meta.resumed_at, self.now).min(self.now),
            reason,
            heard_at: Some(entry.deadline.minus(entry.ttl)),
        };
        self.add_offline(tenure, &noted)
    }

    /// Adds a tenure to the list.
    pub(super) fn add_offline(&mut self, tenure: &TenureId, noted: &Noted) -> Result<(), Cause> {
        let lapsed = noted.reason == EndReason::Lapsed;
        let added = self.sql.prepare_cached(NOTE_OFFLINE)?.execute(params![
            self.id,
            tenure.to_string(),
            lapsed,
            instant(noted.ended_at),
            instant(noted.at),
            noted.reason.as_str(),
            noted.heard_at.map(instant),
        ])?;
        self.meta.roster.list(lapsed).tenures += added as u64;
        *self.lists_changed = true;
        Ok(())
    }

    pub(super) fn is_offlined(&self, tenure: &TenureId) -> Result<bool, Cause> {
        if self.meta.roster.pending_offline() == 0 {
            return Ok(false);
        }
        let mut look = self.sql.prepare_cached(IS_OFFLINED)?;
        Ok(look.query_row(params![self.id, tenure.to_string()], |row| row.get(0))?)
    }

    /// Takes a tenure off the list. Answers whether it was there.
    pub(super) fn forget_offline(&mut self, tenure: &TenureId) -> Result<bool, Cause> {
        match self.meta.roster.pending_offline() {
            0 => Ok(false),
            _ => self.strike_offline(&tenure.to_string()),
        }
    }

    /// The same, by its text.
    pub(super) fn strike_offline(&mut self, tenure: &str) -> Result<bool, Cause> {
        let mut done = self.sql.prepare_cached(OFFLINE_DONE)?;
        let listed: Option<bool> = done.query_row(params![self.id, tenure], |row| row.get(0)).optional()?;
        let Some(lapsed) = listed else { return Ok(false) };
        let list = self.meta.roster.list(lapsed);
        list.tenures = list.tenures.saturating_sub(1);
        *self.lists_changed = true;
        Ok(true)
    }

    /// Notes in the row that names a tenure whether the ledger knows of its end.
    pub(super) fn set_followed(&self, tenure: &TenureId, followed: bool) -> Result<(), Cause> {
        self.sql.prepare_cached(FOLLOWED)?.execute(params![
            self.id,
            tenure.member().as_str(),
            tenure.to_string(),
            followed
        ])?;
        Ok(())
    }

    /// The ledger has followed these.
    pub(super) fn offline_done(&mut self, tenures: &[TenureId]) -> Answer<u64> {
        let mut done = 0;
        for tenure in tenures {
            if self.forget_offline(tenure)? {
                self.set_followed(tenure, true)?;
                done += 1;
            }
        }
        Ok(Ok(done))
    }

    /// Whom the ledger has to follow now.
    pub(super) fn pending_offline(&mut self, limit: u32, force: bool) -> Answer<Pending> {
        self.lift_brake(force)?;
        let brake = self.meta.brake_in_force(&self.options.brake, self.now);
        let mut all = self.offlined(false, limit)?;
        let mut pending = Pending::default();
        match brake {
            None => all.extend(self.offlined(true, limit)?),
            Some(brake) if self.meta.roster.offlined_lapsed.tenures > 0 => {
                pending.next = Some(brake.until);
                pending.braked = Some(brake);
            }
            Some(_) => {}
        }
        all.sort_by_cached_key(|(ended_at, offlined)| (*ended_at, offlined.tenure.to_string()));
        for (ended_at, offlined) in all {
            let ready_at = ended_at + BURST;
            if ready_at > self.now || pending.items.len() >= limit as usize {
                pending.next = Some(pending.next.map_or(ready_at, |other| other.min(ready_at)));
                break;
            }
            pending.items.push(offlined);
        }
        Ok(Ok(pending))
    }

    /// The first of one list, one more than the limit. What cannot be read is passed over until it is verified.
    fn offlined(&self, lapsed: bool, limit: u32) -> Result<Vec<(StoreTime, Offlined)>, Cause> {
        let mut select = self.sql.prepare_cached(OFFLINED)?;
        let mut rows = select.query(params![self.id, lapsed, limit + 1])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            match read_offlined(row) {
                Ok(offlined) => all.push(offlined),
                Err(cause) => tracing::warn!(%cause, "an ended tenure is passed over; verify removes it"),
            }
        }
        Ok(all)
    }
}
