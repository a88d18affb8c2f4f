//! The steps on sessions: attach, detach, patch, delete.

use std::time::Duration;

use rusqlite::{OptionalExtension, params};
use serde_json::Value;
use tenure_core::TenureId;
use tenure_core::event::EventKind;
use tenure_core::id::{Alias, ConnectionId, SessionId};
use tenure_core::membership::Revision;
use tenure_core::session::{
    Attach, AttachOutcome, Attached, Data, DeleteOutcome, Detach, DetachOutcome, Epoch, How, Limit, MAX_CONNECTIONS,
    MAX_FIELDS, PatchOutcome, Session,
};

use crate::error::Cause;
use crate::event::Draft;
use crate::sql::{instant, number, read_epoch, read_name, read_name_or_none, read_number, read_span, span, statements};
use crate::step::{Answer, Step};

use super::record::{Record, record, record_by};

statements! { "session.sql":
    BY_ALIAS = "by_alias",
    UPSERT = "upsert",
    PATCH = "patch",
    DISCONNECT = "disconnect",
    DELETE = "delete",
    COUNT_CONNECTIONS = "count_connections",
    CONNECTED = "connected",
    HOLDER = "holder",
    CONNECT = "connect",
    DROP_CONNECTION = "drop_connection",
}

/// A session that has lost its last connection.
#[derive(Debug)]
pub(crate) struct Left {
    session: SessionId,
    connection: ConnectionId,
    /// None when a foreign hand has spoilt it.
    epoch: Option<Epoch>,
    alias: Option<Alias>,
    /// How long its grace is.
    granted: Duration,
}

/// A grace that has begun: how long it is, and of which attach and alias the session is.
pub(super) type Begun = (Duration, Option<Epoch>, Option<Alias>);

impl Step<'_> {
    /// Attaches one part of the connections.
    pub(super) fn attach(&mut self, tenure: &TenureId, attaches: &[Attach]) -> Answer<Attached> {
        let before = self.revision_of(tenure);
        if let Err(ended) = self.require_alive(tenure)? {
            self.engage_brake()?;
            return Ok(Err(ended));
        }
        let mut outcomes = Vec::with_capacity(attaches.len());
        let mut last = None;
        for attach in attaches {
            let outcome = self.attach_one(tenure, attach)?;
            if let AttachOutcome::Attached { session, .. } = &outcome {
                last = Some(session.epoch);
            }
            outcomes.push(outcome);
        }
        if let Some(epoch) = last {
            self.revise(tenure, Revision(epoch.get()))?;
        }
        self.engage_brake()?;
        Ok(Ok(Attached {
            outcomes,
            revision: self.revision_of(tenure),
            before,
        }))
    }

    fn attach_one(&mut self, tenure: &TenureId, attach: &Attach) -> Result<AttachOutcome, Cause> {
        let record = record(self.sql, self.id, attach.session.as_str())?;
        let record = self.unless_over(record)?;
        if attach.resume_only && record.is_none() {
            return Ok(AttachOutcome::Gone);
        }
        if let Some(of) = record.as_ref().and_then(|record| no_room(record, attach)) {
            return Ok(AttachOutcome::Full { of });
        }
        if let Some(by) = self.alias_taken(attach)? {
            return Ok(AttachOutcome::AliasTaken { by });
        }
        let epoch = Epoch::new(self.next_number()).map_err(|error| Cause::Strange(error.to_string()))?;
        let (how, record) = self.connect(tenure, attach, epoch, record)?;
        let kind = match how {
            How::Created => Some(EventKind::SessionCreated),
            How::Resumed => Some(EventKind::SessionResumed),
            How::Attached => None,
        };
        if let Some(kind) = kind {
            let event = Draft::new(kind).of(tenure).connection(&attach.connection);
            self.emit(event.session(&attach.session, Some(epoch), record.alias.as_ref()))?;
        }
        Ok(AttachOutcome::Attached {
            how,
            session: Box::new(self.seen(record)),
        })
    }

    /// The other session that has the alias, if it may keep it.
    fn alias_taken(&mut self, attach: &Attach) -> Result<Option<SessionId>, Cause> {
        let Some(alias) = &attach.alias else { return Ok(None) };
        let other = record_by(self.sql, BY_ALIAS, self.id, alias.as_str())?;
        match other.filter(|other| other.session != attach.session) {
            Some(other) => Ok(self.unless_over(Some(other))?.map(|other| other.session)),
            None => Ok(None),
        }
    }

    /// Writes the connection and what becomes of its session.
    fn connect(
        &mut self,
        tenure: &TenureId,
        attach: &Attach,
        epoch: Epoch,
        record: Option<Record>,
    ) -> Result<(How, Record), Cause> {
        let how = match &record {
            None => How::Created,
            Some(record) if record.away.is_some() => How::Resumed,
            Some(_) => How::Attached,
        };
        let mut record = record.unwrap_or_else(|| Record::new(attach.session.clone(), epoch, self.now));
        record.epoch = epoch;
        record.grace = attach.grace.or(record.grace);
        if !attach.data.is_empty() {
            merge(&mut record.data, &attach.data);
            record.updated_at = self.now;
        }
        record.alias = attach.alias.clone().or(record.alias);
        record.away = None;
        match how {
            How::Created => self.meta.sessions += 1,
            How::Resumed => self.away_changed(-1),
            How::Attached => {}
        }
        self.write_session(&record)?;
        self.sql.prepare_cached(CONNECT)?.execute(params![
            self.id,
            attach.session.as_str(),
            attach.connection.as_str(),
            tenure.to_string(),
            number(epoch.get())
        ])?;
        let holder = record.connections.insert(attach.connection.clone(), tenure.clone());
        if let Some(holder) = holder.filter(|holder| holder != tenure) {
            self.strike_if_empty(&holder.to_string())?;
        }
        Ok((how, record))
    }

    fn write_session(&self, record: &Record) -> Result<(), Cause> {
        self.sql.prepare_cached(UPSERT)?.execute(params![
            self.id,
            record.session.as_str(),
            number(record.epoch.get()),
            record.alias.as_ref().map(Alias::as_str),
            record.grace.map(span),
            instant(record.created_at),
            instant(record.updated_at),
            record.data_text()?,
        ])?;
        Ok(())
    }

    /// Notes that so many more sessions are in the index of the disconnected ones.
    pub(super) fn away_changed(&mut self, by: i64) {
        self.meta.disconnected = self.meta.disconnected.saturating_add_signed(by);
        *self.lists_changed = true;
    }

    /// A session as it is told within this step.
    fn seen(&self, record: Record) -> Session {
        let (resumed_at, now, table) = (self.meta.resumed_at, self.now, self.live.lock());
        let alive = |tenure: &TenureId| {
            let entry = table.head(tenure.member()).filter(|entry| entry.term == tenure.term());
            entry.is_some_and(|entry| now < entry.end(resumed_at, now))
        };
        record.seen(alive, resumed_at, now)
    }

    /// Detaches one part of the connections.
    pub(super) fn detach(&mut self, tenure: &TenureId, detaches: &[Detach]) -> Answer<Vec<DetachOutcome>> {
        if let Err(ended) = self.require_alive(tenure)? {
            self.engage_brake()?;
            return Ok(Err(ended));
        }
        let mut outcomes = Vec::with_capacity(detaches.len());
        for detach in detaches {
            outcomes.push(self.detach_one(tenure, detach)?);
        }
        self.engage_brake()?;
        Ok(Ok(outcomes))
    }

    fn detach_one(&mut self, tenure: &TenureId, detach: &Detach) -> Result<DetachOutcome, Cause> {
        let (session, connection) = (detach.session.as_str(), detach.connection.as_str());
        let mut look = self.sql.prepare_cached(HOLDER)?;
        let mut rows = look.query(params![self.id, session, connection])?;
        let held: Option<(TenureId, Epoch)> = match rows.next()? {
            Some(row) => Some((read_name(row, 0)?, read_epoch(row, 1)?)),
            None => None,
        };
        drop(rows);
        match held {
            None => return Ok(DetachOutcome::NotAttached),
            Some((by, _)) if by != *tenure => return Ok(DetachOutcome::NotHolder { by }),
            Some((_, epoch)) if detach.epoch.is_some_and(|seen| seen != epoch) => {
                return Ok(DetachOutcome::Stale { epoch });
            }
            Some(_) => {}
        }
        self.drop_connection(session, connection, &tenure.to_string())?;
        let left = self.disconnect_if_last(&detach.session, &detach.connection)?;
        if let Some(left) = &left {
            self.tell_disconnected(left, Some(tenure), "detached", None)?;
        }
        Ok(DetachOutcome::Detached {
            reap_in: left.map(|left| left.granted),
        })
    }

    /// Compare-and-delete.
    pub(super) fn drop_connection(&self, session: &str, connection: &str, tenure: &str) -> Result<(), Cause> {
        let mut drop = self.sql.prepare_cached(DROP_CONNECTION)?;
        drop.execute(params![self.id, session, connection, tenure])?;
        Ok(())
    }

    /// Begins the grace of a session that has just lost this connection, if it was the last.
    pub(super) fn disconnect_if_last(
        &mut self,
        session: &SessionId,
        connection: &ConnectionId,
    ) -> Result<Option<Left>, Cause> {
        if self.is_connected(session.as_str())? {
            return Ok(None);
        }
        let begun = self.begin_grace(session)?;
        Ok(begun.map(|(granted, epoch, alias)| Left {
            session: session.clone(),
            connection: connection.clone(),
            epoch,
            alias,
            granted,
        }))
    }

    /// Puts a session without connections into the index: its grace begins now. Answers how long it is, with what can be
    /// read of the session; nothing when it is there already.
    pub(super) fn begin_grace(&mut self, session: &SessionId) -> Result<Option<Begun>, Cause> {
        let mut disconnect = self.sql.prepare_cached(DISCONNECT)?;
        let grace = span(self.options.sessions.grace);
        let mut rows = disconnect.query(params![self.id, session.as_str(), grace, instant(self.now)])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let (epoch, alias) = (read_epoch(row, 1).ok(), read_name_or_none(row, 2).unwrap_or_default());
        let begun = (read_span(row, 0)?, epoch, alias);
        drop(rows);
        drop(disconnect);
        self.away_changed(1);
        Ok(Some(begun))
    }

    /// Whether a session has any connection.
    pub(super) fn is_connected(&self, session: &str) -> Result<bool, Cause> {
        let mut look = self.sql.prepare_cached(CONNECTED)?;
        Ok(look.query_row(params![self.id, session], |row| row.get(0))?)
    }

    pub(crate) fn tell_disconnected(
        &mut self,
        left: &Left,
        tenure: Option<&TenureId>,
        reason: &str,
        pass: Option<&str>,
    ) -> Result<(), Cause> {
        let mut event = Draft::new(EventKind::SessionDisconnected)
            .session(&left.session, left.epoch, left.alias.as_ref())
            .connection(&left.connection)
            .because(reason);
        if let Some(tenure) = tenure {
            event = event.of(tenure);
        }
        if let Some(pass) = pass {
            event = event.in_pass(pass);
        }
        self.emit(event)
    }

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
    fn unless_over(&mut self, record: Option<Record>) -> Result<Option<Record>, Cause> {
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
}

fn no_room(record: &Record, attach: &Attach) -> Option<Limit> {
    if !attach.data.is_empty() {
        let mut after = record.data.clone();
        merge(&mut after, &attach.data);
        if after.len() > MAX_FIELDS {
            return Some(Limit::Fields);
        }
    }
    let more = !record.connections.contains_key(&attach.connection);
    (more && record.connections.len() >= MAX_CONNECTIONS).then_some(Limit::Connections)
}

fn merge(data: &mut Data, change: &Data) {
    for (field, value) in change {
        match value {
            Value::Null => drop(data.remove(field)),
            value => drop(data.insert(field.clone(), value.clone())),
        }
    }
}
