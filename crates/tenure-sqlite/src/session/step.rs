//! What all steps on sessions share, and those that are about no connection: patch and delete.

use rusqlite::{OptionalExtension, params};
use tenure_core::TenureId;
use tenure_core::event::EventKind;
use tenure_core::id::SessionId;
use tenure_core::session::{Data, DeleteOutcome, Limit, MAX_FIELDS, PatchOutcome, Session};

use crate::error::Cause;
use crate::event::Draft;
use crate::sql::{instant, read_number, statements};
use crate::step::{Answer, Step};

use super::record::{Record, merge, record};

statements! { "session.sql":
    PATCH = "patch",
    DELETE = "delete",
    COUNT_CONNECTIONS = "count_connections",
}

impl Step<'_> {
    /// Changes the data of a session.
    pub(super) fn patch_session(
        &mut self,
        session: &SessionId,
        tenure: Option<&TenureId>,
        data: &Data,
    ) -> Answer<PatchOutcome> {
        let alive = match tenure {
            Some(tenure) => self.require_alive(tenure)?,
            None => Ok(()),
        };
        let outcome = match alive {
            Ok(()) => Ok(self.patch_one(session, data)?),
            Err(ended) => Err(ended),
        };
        self.engage_brake()?;
        Ok(outcome)
    }

    fn patch_one(&mut self, session: &SessionId, data: &Data) -> Result<PatchOutcome, Cause> {
        let record = record(self.sql, self.id, session.as_str())?;
        let Some(mut record) = self.unless_over(record)? else {
            return Ok(PatchOutcome::NotFound);
        };
        if !data.is_empty() {
            merge(&mut record.data, data);
            if record.data.len() > MAX_FIELDS {
                return Ok(PatchOutcome::Full { of: Limit::Fields });
            }
            record.updated_at = self.now;
            self.sql.prepare_cached(PATCH)?.execute(params![
                self.id,
                session.as_str(),
                record.data_text()?,
                instant(self.now)
            ])?;
        }
        Ok(PatchOutcome::Patched(Box::new(self.seen(record))))
    }

    /// Deletes a session without connections.
    pub(super) fn delete_session(&mut self, session: &SessionId) -> Answer<DeleteOutcome> {
        let Some(record) = record(self.sql, self.id, session.as_str())? else {
            return Ok(Ok(DeleteOutcome::NotFound));
        };
        let mut count = self.sql.prepare_cached(COUNT_CONNECTIONS)?;
        let connections = count.query_row(params![self.id, session.as_str()], |row| read_number(row, 0))?;
        drop(count);
        if connections > 0 {
            return Ok(Ok(DeleteOutcome::Active { connections }));
        }
        self.remove_session(session.as_str())?;
        let event = Draft::new(EventKind::SessionDeleted);
        self.emit(event.session(session, Some(record.epoch), record.alias.as_ref()))?;
        Ok(Ok(DeleteOutcome::Deleted { epoch: record.epoch }))
    }

    /// Reaps a session if it is an orphan and nothing holds the reaper back. Answers it when it stays.
    pub(super) fn unless_over(&mut self, record: Option<Record>) -> Result<Option<Record>, Cause> {
        let Some(found) = &record else { return Ok(None) };
        let over_at = found.away.map(|away| away.over_at(self.meta.resumed_at, self.now));
        let over = over_at.is_some_and(|over_at| self.now >= over_at) && found.connections.is_empty();
        if !over || self.meta.brake_in_force(&self.options.brake, self.now).is_some() {
            return Ok(record);
        }
        self.remove_session(found.session.as_str())?;
        let event = Draft::new(EventKind::SessionReaped);
        self.emit(event.session(&found.session, Some(found.epoch), found.alias.as_ref()))?;
        Ok(None)
    }

    /// Deletes the row of a session, and with it its data, its alias and its place in the index.
    pub(super) fn remove_session(&mut self, session: &str) -> Result<(), Cause> {
        let mut delete = self.sql.prepare_cached(DELETE)?;
        let was_away = delete
            .query_row(params![self.id, session], |row| row.get(0))
            .optional()?;
        drop(delete);
        self.meta.sessions = self.meta.sessions.saturating_sub(u64::from(was_away.is_some()));
        if was_away == Some(true) {
            self.away_changed(-1);
        }
        Ok(())
    }

    /// Notes that so many more sessions are in the index of the disconnected ones.
    pub(super) fn away_changed(&mut self, by: i64) {
        self.meta.disconnected = self.meta.disconnected.saturating_add_signed(by);
        *self.lists_changed = true;
    }

    /// A session as it is told within this step.
    pub(super) fn seen(&self, record: Record) -> Session {
        let (resumed_at, now, table) = (self.meta.resumed_at, self.now, self.live.lock());
        let alive = |tenure: &TenureId| {
            let entry = table.head(tenure.member()).filter(|entry| entry.term == tenure.term());
            entry.is_some_and(|entry| now < entry.end(resumed_at, now))
        };
        record.seen(alive, resumed_at, now)
    }
}
