//! Sessions and their connections, on one group.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::decide::Decide;
use super::group::GroupModel;
use crate::error::Result;
use crate::event::EventKind;
use crate::id::{Alias, ConnectionId, SessionId, TenureId};
use crate::membership::Revision;
use crate::session::{
    Attach, AttachOutcome, Attached, Attaches, Data, DeleteOutcome, DeleteSession, Detach, DetachOutcome, Detaches,
    Epoch, How, Limit, MAX_CONNECTIONS, MAX_FIELDS, PatchOutcome, PatchSession, Session, SessionByAlias, SessionOf,
    SessionState,
};
use crate::settling::end_of;
use crate::store::Call;
use crate::time::StoreTime;

/// One session.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) epoch: Epoch,
    pub(super) alias: Option<Alias>,
    pub(super) data: Data,
    pub(super) grace: Option<Duration>,
    pub(super) created_at: StoreTime,
    pub(super) updated_at: StoreTime,
    pub(super) connections: BTreeMap<ConnectionId, (TenureId, Epoch)>,
    /// Set while it has no connections.
    pub(super) away: Option<Away>,
}

/// A session without connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Away {
    /// When its grace is over, as it was fixed when the last connection went.
    pub(super) reap_at: StoreTime,
    /// The grace.
    pub(super) granted: Duration,
    /// Its entry in the lazy index: the earliest time at which it may be an orphan.
    pub(super) due: StoreTime,
}

impl Away {
    /// When it is an orphan: like the end of a tenure, a gap gives everyone the whole time anew.
    pub(super) fn over_at(self, resumed_at: StoreTime, now: StoreTime) -> StoreTime {
        end_of(self.reap_at, self.granted, resumed_at, now)
    }
}

impl Decide<Attaches> for GroupModel {
    /// Attaches connections. A tenure that is met past its end is ended even though the call fails.
    fn step(&mut self, Attaches { tenure, attaches }: &Attaches, call: Call, now: StoreTime) -> Result<Attached> {
        self.open(now, call)?;
        let before = self.revision_of(tenure);
        let outcomes = self.require_alive(tenure, now).and_then(|()| {
            attaches
                .iter()
                .map(|attach| self.attach_one(tenure, attach, now))
                .collect()
        });
        self.engage_brake(now);
        Ok(Attached {
            outcomes: outcomes?,
            revision: self.revision_of(tenure),
            before,
        })
    }
}

impl GroupModel {
    fn attach_one(&mut self, tenure: &TenureId, attach: &Attach, now: StoreTime) -> Result<AttachOutcome> {
        self.reap_if_over(&attach.session, now);
        let session = self.sessions.get(&attach.session);
        if attach.resume_only && session.is_none() {
            return Ok(AttachOutcome::Gone);
        }
        if let Some(of) = session.and_then(|record| no_room(record, attach)) {
            return Ok(AttachOutcome::Full { of });
        }
        if let Some(by) = self.alias_taken(attach, now) {
            return Ok(AttachOutcome::AliasTaken { by });
        }
        let epoch = Epoch::new(self.next_number(now))?;
        let how = self.connect(tenure, attach, epoch, now);
        self.revise(tenure, Revision(epoch.get()));
        let kind = match how {
            How::Created => Some(EventKind::SessionCreated),
            How::Resumed => Some(EventKind::SessionResumed),
            How::Attached => None,
        };
        let alias = self
            .sessions
            .get(&attach.session)
            .and_then(|record| record.alias.clone());
        if let Some(kind) = kind {
            let event = self.emit(now, kind);
            event.tenure = Some(tenure.clone());
            event.session = Some(attach.session.clone());
            event.connection = Some(attach.connection.clone());
            event.epoch = Some(epoch);
            event.alias = alias;
        }
        let session = self.session_seen(&attach.session, self.resumed_at, now);
        Ok(AttachOutcome::Attached {
            how,
            session: Box::new(session.expect("the session was attached to just now")),
        })
    }

    /// The other session that has the alias, if it may keep it.
    fn alias_taken(&mut self, attach: &Attach, now: StoreTime) -> Option<SessionId> {
        let other = self.aliases.get(attach.alias.as_ref()?)?.clone();
        if other == attach.session || self.reap_if_over(&other, now) {
            return None;
        }
        Some(other)
    }

    fn connect(&mut self, tenure: &TenureId, attach: &Attach, epoch: Epoch, now: StoreTime) -> How {
        let how = match self.sessions.get(&attach.session) {
            None => How::Created,
            Some(record) if record.away.is_some() => How::Resumed,
            Some(_) => How::Attached,
        };
        let record = self.sessions.entry(attach.session.clone()).or_insert_with(|| Record {
            epoch,
            alias: None,
            data: Data::new(),
            grace: None,
            created_at: now,
            updated_at: now,
            connections: BTreeMap::new(),
            away: None,
        });
        record.epoch = epoch;
        record.grace = attach.grace.or(record.grace);
        if !attach.data.is_empty() {
            merge(&mut record.data, &attach.data);
            record.updated_at = now;
        }
        let away = record.away.take();
        let freed = attach
            .alias
            .as_ref()
            .filter(|alias| record.alias.as_ref() != Some(alias));
        let freed = freed.and_then(|alias| record.alias.replace(alias.clone()));
        let holder = record
            .connections
            .insert(attach.connection.clone(), (tenure.clone(), epoch))
            .map(|(holder, _)| holder);
        if let Some(away) = away {
            self.away.remove(&(away.due, attach.session.clone()));
        }
        if let Some(alias) = freed {
            self.aliases.remove(&alias);
        }
        if let Some(alias) = &attach.alias {
            self.aliases.insert(alias.clone(), attach.session.clone());
        }
        let holding = (attach.session.clone(), attach.connection.clone());
        if let Some(holder) = holder.filter(|holder| holder != tenure) {
            self.drop_connection(&holder, &holding);
        }
        self.connected.entry(tenure.clone()).or_default().insert(holding);
        how
    }
}

impl Decide<Detaches> for GroupModel {
    /// Detaches connections.
    fn step(
        &mut self,
        Detaches { tenure, detaches }: &Detaches,
        call: Call,
        now: StoreTime,
    ) -> Result<Vec<DetachOutcome>> {
        self.open(now, call)?;
        let outcomes = self.require_alive(tenure, now).map(|()| {
            detaches
                .iter()
                .map(|detach| self.detach_one(tenure, detach, now))
                .collect()
        });
        self.engage_brake(now);
        outcomes
    }
}

impl GroupModel {
    fn detach_one(&mut self, tenure: &TenureId, detach: &Detach, now: StoreTime) -> DetachOutcome {
        let record = self.sessions.get(&detach.session);
        let held = record.and_then(|record| record.connections.get(&detach.connection));
        match held {
            None => return DetachOutcome::NotAttached,
            Some((holder, _)) if holder != tenure => return DetachOutcome::NotHolder { by: holder.clone() },
            Some((_, epoch)) if detach.epoch.is_some_and(|seen| seen != *epoch) => {
                return DetachOutcome::Stale { epoch: *epoch };
            }
            Some(_) => {}
        }
        let holding = (detach.session.clone(), detach.connection.clone());
        self.drop_connection(tenure, &holding);
        let reap_in = self.disconnect(&holding, now);
        if reap_in.is_some() {
            self.tell_disconnected(&holding, tenure, "detached", None, now);
        }
        DetachOutcome::Detached { reap_in }
    }

    /// Takes a connection from its session. When it was the last, the grace begins: answers how long it is.
    pub(super) fn disconnect(&mut self, holding: &(SessionId, ConnectionId), now: StoreTime) -> Option<Duration> {
        let default = self.options.sessions.grace;
        let record = self.sessions.get_mut(&holding.0)?;
        record.connections.remove(&holding.1)?;
        if !record.connections.is_empty() {
            return None;
        }
        let granted = record.grace.unwrap_or(default);
        let reap_at = now + granted;
        record.away = Some(Away {
            reap_at,
            granted,
            due: reap_at,
        });
        self.away.insert((reap_at, holding.0.clone()));
        Some(granted)
    }

    pub(super) fn tell_disconnected(
        &mut self,
        holding: &(SessionId, ConnectionId),
        tenure: &TenureId,
        reason: &str,
        pass: Option<&str>,
        now: StoreTime,
    ) {
        let record = self.sessions.get(&holding.0);
        let (epoch, alias) = (
            record.map(|record| record.epoch),
            record.and_then(|record| record.alias.clone()),
        );
        let event = self.emit(now, EventKind::SessionDisconnected);
        event.tenure = Some(tenure.clone());
        event.session = Some(holding.0.clone());
        event.connection = Some(holding.1.clone());
        event.epoch = epoch;
        event.alias = alias;
        event.reason = Some(reason.to_owned());
        event.pass = pass.map(str::to_owned);
    }

    /// Takes a connection from what a tenure holds; an ended one that has nothing left needs no more work.
    pub(super) fn drop_connection(&mut self, tenure: &TenureId, holding: &(SessionId, ConnectionId)) {
        let Some(connected) = self.connected.get_mut(tenure) else {
            return;
        };
        connected.remove(holding);
        if connected.is_empty() {
            self.connected.remove(tenure);
        }
        self.note_loss(tenure);
    }
}

impl Decide<PatchSession> for GroupModel {
    /// Changes the data of a session.
    fn step(&mut self, ask: &PatchSession, call: Call, now: StoreTime) -> Result<PatchOutcome> {
        let PatchSession { session, tenure, data } = ask;
        self.open(now, call)?;
        let alive = tenure.as_ref().map_or(Ok(()), |tenure| self.require_alive(tenure, now));
        let outcome = alive.map(|()| self.patch_one(session, data, now));
        self.engage_brake(now);
        outcome
    }
}

impl GroupModel {
    fn patch_one(&mut self, session: &SessionId, data: &Data, now: StoreTime) -> PatchOutcome {
        self.reap_if_over(session, now);
        let Some(record) = self.sessions.get_mut(session) else {
            return PatchOutcome::NotFound;
        };
        if fields_after(&record.data, data) > MAX_FIELDS {
            return PatchOutcome::Full { of: Limit::Fields };
        }
        if !data.is_empty() {
            merge(&mut record.data, data);
            record.updated_at = now;
        }
        let seen = self.session_seen(session, self.resumed_at, now);
        seen.map_or(PatchOutcome::NotFound, |seen| PatchOutcome::Patched(Box::new(seen)))
    }
}

impl Decide<DeleteSession> for GroupModel {
    /// Deletes a session without connections.
    fn step(&mut self, DeleteSession { session }: &DeleteSession, call: Call, now: StoreTime) -> Result<DeleteOutcome> {
        self.open(now, call)?;
        let Some(record) = self.sessions.get(session) else {
            return Ok(DeleteOutcome::NotFound);
        };
        let connections = record.connections.len() as u64;
        if connections > 0 {
            return Ok(DeleteOutcome::Active { connections });
        }
        let epoch = record.epoch;
        self.remove_session(session, EventKind::SessionDeleted, None, now);
        Ok(DeleteOutcome::Deleted { epoch })
    }
}

impl GroupModel {
    /// Reaps a session if it is an orphan and nothing holds the reaper back.
    pub(super) fn reap_if_over(&mut self, session: &SessionId, now: StoreTime) -> bool {
        let away = self.sessions.get(session).and_then(|record| record.away);
        let over = away.is_some_and(|away| now >= away.over_at(self.resumed_at, now));
        if !over || self.brake_in_force(now).is_some() {
            return false;
        }
        self.remove_session(session, EventKind::SessionReaped, None, now);
        true
    }

    /// Deletes a session with everything of it.
    pub(super) fn remove_session(&mut self, session: &SessionId, kind: EventKind, pass: Option<&str>, now: StoreTime) {
        let Some(record) = self.sessions.remove(session) else {
            return;
        };
        if let Some(away) = record.away {
            self.away.remove(&(away.due, session.clone()));
        }
        if let Some(alias) = &record.alias {
            self.aliases.remove(alias);
        }
        let event = self.emit(now, kind);
        event.session = Some(session.clone());
        event.epoch = Some(record.epoch);
        event.alias = record.alias;
        event.pass = pass.map(str::to_owned);
    }

    /// Looks one up.
    pub(super) fn session(&self, session: &SessionId, now: StoreTime) -> Option<Session> {
        self.session_seen(session, self.resumed_for_reading(now), now)
    }
}

impl Decide<SessionOf> for GroupModel {
    fn read(&self, ask: &SessionOf, now: StoreTime) -> Result<Option<Session>> {
        Ok(self.session(&ask.session, now))
    }
}

impl Decide<SessionByAlias> for GroupModel {
    fn read(&self, ask: &SessionByAlias, now: StoreTime) -> Result<Option<Session>> {
        let session = self.aliases.get(&ask.alias);
        Ok(session.and_then(|session| self.session(session, now)))
    }
}

impl GroupModel {
    pub(super) fn session_seen(&self, session: &SessionId, resumed_at: StoreTime, now: StoreTime) -> Option<Session> {
        let record = self.sessions.get(session)?;
        let alive = |(tenure, _): &&(TenureId, Epoch)| self.is_alive(tenure, resumed_at, now);
        let connections = record.connections.values().filter(alive).count() as u64;
        let reap_in = record.away.map(|away| away.over_at(resumed_at, now).since(now));
        Some(Session {
            session: session.clone(),
            state: match reap_in {
                Some(Duration::ZERO) => SessionState::Orphan,
                None if connections > 0 => SessionState::Active,
                _ => SessionState::Disconnected,
            },
            connections,
            alias: record.alias.clone(),
            data: record.data.clone(),
            epoch: record.epoch,
            created_at: record.created_at,
            updated_at: record.updated_at,
            grace: record.grace,
            disconnected_at: record.away.map(|away| away.reap_at.minus(away.granted)),
            reap_in,
        })
    }
}

fn no_room(record: &Record, attach: &Attach) -> Option<Limit> {
    if fields_after(&record.data, &attach.data) > MAX_FIELDS {
        return Some(Limit::Fields);
    }
    let more = !record.connections.contains_key(&attach.connection);
    (more && record.connections.len() >= MAX_CONNECTIONS).then_some(Limit::Connections)
}

fn fields_after(data: &Data, change: &Data) -> usize {
    let mut after = data.clone();
    merge(&mut after, change);
    after.len()
}

fn merge(data: &mut Data, change: &Data) {
    for (field, value) in change {
        match value {
            Value::Null => drop(data.remove(field)),
            value => drop(data.insert(field.clone(), value.clone())),
        }
    }
}
