//! Attaching: a session is made, joined, or resumed.

use rusqlite::params;
use tenure_core::TenureId;
use tenure_core::event::EventKind;
use tenure_core::id::{Alias, SessionId};
use tenure_core::membership::Revision;
use tenure_core::session::{Attach, AttachOutcome, Attached, Epoch, How, Limit, MAX_CONNECTIONS, MAX_FIELDS};

use crate::error::Cause;
use crate::event::Draft;
use crate::sql::{instant, number, span, statements};
use crate::step::{Answer, Step};

use super::record::{Record, merge, record, record_by};

statements! { "session.sql":
    BY_ALIAS = "by_alias",
    UPSERT = "upsert",
    CONNECT = "connect",
}

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
