//! The settings of a roster, and the ttl of everyone that follows them.

use std::time::Duration;

use rusqlite::{OptionalExtension, params};
use tenure_core::ledger::RosterSettings;
use tenure_core::ledger::settings::MAX_STALE_AFTER;
use tenure_core::roster::Over;
use tenure_core::{MemberId, TenureId};

use crate::error::Cause;
use crate::live::Entry;
use crate::sql::statements;
use crate::step::{Answer, Step};

statements! { "roster.sql":
    RETIME_ALL = "retime_all",
    RETIMING = "retiming",
    RETIMED_TO = "retimed_to",
    RETIMED = "retimed",
    TO_RETIME = "to_retime",
}

impl Step<'_> {
    /// Takes settings over. Everyone is to be given their ttl.
    pub(super) fn put_roster_settings(&mut self, settings: &RosterSettings, over: Over) -> Answer<bool> {
        let there = self.meta.roster.settings.map(|there| there.version);
        if !over.allows(there, settings.version) {
            return Ok(Ok(false));
        }
        self.sql.prepare_cached(RETIME_ALL)?.execute([self.id])?;
        let roster = &mut self.meta.roster;
        roster.settings = Some(*settings);
        roster.retiming = true;
        roster.changes += 1;
        Ok(Ok(true))
    }

    /// Gives a part of the members, in order of their names, the ttl that the settings say. Answers whether there are
    /// more.
    pub(super) fn retime(&mut self, limit: u32) -> Answer<bool> {
        let (true, Some(settings)) = (self.meta.roster.retiming, self.meta.roster.settings) else {
            return Ok(Ok(false));
        };
        let ttl = settings.ttl();
        let mut part = self.to_retime(limit)?;
        let more = part.len() > limit as usize;
        part.truncate(limit as usize);
        for member in &part {
            if let Ok(member) = MemberId::new(member) {
                self.retime_one(&member, ttl)?;
            }
        }
        match part.last().filter(|_| more) {
            Some(last) => drop(self.sql.prepare_cached(RETIMED_TO)?.execute(params![self.id, last])?),
            None => {
                self.sql.prepare_cached(RETIMED)?.execute([self.id])?;
                self.meta.roster.retiming = false;
                self.meta.ttls = (ttl <= MAX_STALE_AFTER).then_some((ttl, ttl));
            }
        }
        self.meta.roster.changes += 1;
        self.engage_brake()?;
        Ok(Ok(more))
    }

    /// The names of the next members, one more than the limit.
    fn to_retime(&self, limit: u32) -> Result<Vec<String>, Cause> {
        let after: Option<String> = self
            .sql
            .prepare_cached(RETIMING)?
            .query_row([self.id], |row| row.get(0))
            .optional()?;
        let mut select = self.sql.prepare_cached(TO_RETIME)?;
        let names = select.query_map(params![self.id, after.unwrap_or_default(), limit + 1], |row| row.get(0))?;
        Ok(names.collect::<rusqlite::Result<_>>()?)
    }

    fn retime_one(&mut self, member: &MemberId, ttl: Duration) -> Result<(), Cause> {
        let Some(before) = self.live.lock().head(member) else {
            return Ok(());
        };
        if before.ttl == ttl || self.end_if_past(&TenureId::new(member.clone(), before.term))? {
            return Ok(());
        }
        self.meta.note_ttl(ttl);
        // One look under one lock, so that no beat is lost between the old deadline and the new one.
        let mut table = self.live.lock();
        let Some(before) = table.head(member) else {
            return Ok(());
        };
        let from = match before.ttl > MAX_STALE_AFTER {
            true => self.now,
            false => before.deadline.minus(before.ttl),
        };
        let deadline = from + ttl;
        let entry = Entry {
            deadline,
            ttl,
            due: before.due.min(deadline),
            ..before
        };
        self.undo.replace(&mut table, member, Some(entry));
        drop(table);
        self.write_ttl(member, &entry)
    }
}
