//! The sessions and connections of one group.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::decide::Decide;
use super::group::GroupModel;
use super::holdings::Link;
use super::rows::{Away, ConnectionRow, SessionRow};
use super::table::Table;
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

/// The sessions of a group.
#[derive(Debug, Default)]
pub(super) struct SessionsModel {
    pub(super) table: Table<SessionId, SessionRow>,
    pub(super) connections: Table<Link, ConnectionRow>,
    /// The number of connections per session. Changes with every connection.
    pub(super) connected: Table<SessionId, usize>,
    pub(super) aliases: Table<Alias, SessionId>,
    /// Sessions without connections, by the earliest time at which they may be orphans.
    away: BTreeSet<(StoreTime, SessionId)>,
    active: BTreeSet<SessionId>,
}

impl SessionsModel {
    pub(super) fn get(&self, session: &SessionId) -> Option<&SessionRow> {
        self.table.get(session)
    }

    /// Sets or removes a session and its index entries. Returns the previous one.
    pub(super) fn set(&mut self, session: &SessionId, row: Option<SessionRow>) -> Option<SessionRow> {
        let place = row.as_ref().map(|row| (row.alias.clone(), row.away));
        let before = self.table.set(session.clone(), row);
        if let Some(before) = &before {
            match before.away {
                Some(away) => self.away.remove(&(away.due, session.clone())),
                None => self.active.remove(session),
            };
            if let Some(alias) = &before.alias
                && self.aliases.get(alias) == Some(session)
            {
                self.aliases.remove(alias);
            }
        }
        if let Some((alias, away)) = place {
            match away {
                Some(away) => self.away.insert((away.due, session.clone())),
                None => self.active.insert(session.clone()),
            };
            if let Some(alias) = alias {
                self.aliases.insert(alias, session.clone());
            }
        }
        before
    }

    /// The number of connections of a session.
    pub(super) fn connected(&self, session: &SessionId) -> usize {
        self.connected.get(session).copied().unwrap_or_default()
    }

    /// The connections of a session.
    pub(super) fn connections_of<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> impl Iterator<Item = (&'a Link, &'a ConnectionRow)> {
        let from = (session.clone(), ConnectionId::first());
        // The count tracks the changes of the connections.
        self.connected.get(session);
        let all = self.connections.range_unseen(from..);
        all.take_while(move |((of, _), _)| of == session)
    }

    /// The session of an alias.
    pub(super) fn by_alias(&self, alias: &Alias) -> Option<&SessionId> {
        self.aliases.get(alias)
    }

    /// The names after one: of all sessions, or of those with connections.
    pub(super) fn names(&self, active: bool, behind: Bound<SessionId>) -> Box<dyn Iterator<Item = &SessionId> + '_> {
        let all = self.table.range((behind.clone(), Bound::Unbounded));
        match active {
            true => Box::new(self.active.range((behind, Bound::Unbounded))),
            false => Box::new(all.map(|(name, _)| name)),
        }
    }

    /// The sessions without connections after a cursor, by the earliest time at which they may be orphans.
    pub(super) fn away_after(
        &self,
        behind: Bound<(StoreTime, SessionId)>,
    ) -> impl Iterator<Item = &(StoreTime, SessionId)> {
        self.table.see_all();
        self.away.range((behind, Bound::Unbounded))
    }

    /// The sessions that may be orphans by then.
    pub(super) fn away_by(&self, now: StoreTime) -> impl Iterator<Item = &(StoreTime, SessionId)> {
        self.away_after(Bound::Unbounded).take_while(move |(at, _)| *at <= now)
    }

    /// The number of sessions without connections.
    pub(super) fn disconnected(&self) -> u64 {
        self.table.see_all();
        self.away.len() as u64
    }
}

impl Away {
    /// When it becomes an orphan. Like the end of a tenure, a gap restarts its full grace.
    pub(super) fn over_at(self, resumed_at: StoreTime, now: StoreTime) -> StoreTime {
        end_of(self.reap_at, self.granted, resumed_at, now)
    }
}

impl Decide<Attaches> for GroupModel {
    /// Attaches connections. A tenure found past its end is ended even though the call fails.
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
        if attach.resume_only && self.sessions.get(&attach.session).is_none() {
            return Ok(AttachOutcome::Gone);
        }
        if let Some(of) = self.no_room(attach) {
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
        let session = self.session_seen(&attach.session, self.head().resumed_at, now);
        Ok(AttachOutcome::Attached {
            how,
            session: Box::new(session.expect("the session was attached to just now")),
        })
    }

    fn no_room(&self, attach: &Attach) -> Option<Limit> {
        let row = self.sessions.get(&attach.session)?;
        if fields_after(&row.data, &attach.data) > MAX_FIELDS {
            return Some(Limit::Fields);
        }
        let link = (attach.session.clone(), attach.connection.clone());
        let more = !self.sessions.connections.contains(&link);
        (more && self.sessions.connected(&attach.session) >= MAX_CONNECTIONS).then_some(Limit::Connections)
    }

    /// The other session with the alias, unless that one is an orphan.
    fn alias_taken(&mut self, attach: &Attach, now: StoreTime) -> Option<SessionId> {
        let other = self.sessions.by_alias(attach.alias.as_ref()?)?.clone();
        if other == attach.session || self.reap_if_over(&other, now) {
            return None;
        }
        Some(other)
    }

    fn connect(&mut self, tenure: &TenureId, attach: &Attach, epoch: Epoch, now: StoreTime) -> How {
        let before = self.sessions.get(&attach.session).cloned();
        let how = match &before {
            None => How::Created,
            Some(row) if row.away.is_some() => How::Resumed,
            Some(_) => How::Attached,
        };
        let mut row = before.unwrap_or_else(|| SessionRow {
            epoch,
            alias: None,
            data: Arc::default(),
            grace: None,
            created_at: now,
            updated_at: now,
            away: None,
        });
        row.epoch = epoch;
        row.grace = attach.grace.or(row.grace);
        if !attach.data.is_empty() {
            merge(Arc::make_mut(&mut row.data), &attach.data);
            row.updated_at = now;
        }
        row.away = None;
        row.alias = attach.alias.clone().or(row.alias);
        self.sessions.set(&attach.session, Some(row));
        let link = (attach.session.clone(), attach.connection.clone());
        let tenure = tenure.clone();
        let before = self.set_connection(&link, Some(ConnectionRow { tenure, epoch }));
        if let Some(holder) = before {
            self.note_loss(&holder.tenure);
        }
        how
    }

    /// Sets the holder of a connection, or removes it. Returns the previous row.
    pub(super) fn set_connection(&mut self, link: &Link, row: Option<ConnectionRow>) -> Option<ConnectionRow> {
        let row = row.map(|row| ConnectionRow {
            tenure: self.own_name(&row.tenure),
            ..row
        });
        let tenure = row.as_ref().map(|row| row.tenure.clone());
        let before = self.sessions.connections.set(link.clone(), row);
        let others = self.sessions.connected(&link.0) - usize::from(before.is_some());
        let connected = others + usize::from(tenure.is_some());
        let connected = (connected > 0).then_some(connected);
        self.sessions.connected.set(link.0.clone(), connected);
        let holder = before.as_ref().map(|before| before.tenure.clone());
        if holder != tenure {
            if let Some(holder) = holder {
                self.held.drop_connection(holder, link.clone());
            }
            if let Some(tenure) = tenure {
                self.held.add_connection(tenure, link.clone());
            }
        }
        before
    }
}

impl Decide<Detaches> for GroupModel {
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
        let holding = (detach.session.clone(), detach.connection.clone());
        match self.sessions.connections.get(&holding) {
            None => return DetachOutcome::NotAttached,
            Some(held) if held.tenure != *tenure => {
                let by = held.tenure.clone();
                return DetachOutcome::NotHolder { by };
            }
            Some(held) if detach.epoch.is_some_and(|seen| seen < held.epoch) => {
                return DetachOutcome::Stale { epoch: held.epoch };
            }
            Some(_) => {}
        }
        let reap_in = self.disconnect(&holding, now);
        if reap_in.is_some() {
            self.tell_disconnected(&holding, tenure, "detached", None, now);
        }
        DetachOutcome::Detached { reap_in }
    }

    /// Removes a connection. If it was the last of its session, the grace begins; returns its length.
    pub(super) fn disconnect(&mut self, holding: &Link, now: StoreTime) -> Option<Duration> {
        let before = self.set_connection(holding, None)?;
        self.note_loss(&before.tenure);
        if self.sessions.connected(&holding.0) > 0 {
            return None;
        }
        let row = self.sessions.get(&holding.0)?.clone();
        let granted = row.grace.unwrap_or(self.options.sessions.grace);
        let reap_at = now + granted;
        let away = Away {
            reap_at,
            granted,
            due: reap_at,
        };
        let away = Some(away);
        self.sessions.set(&holding.0, Some(SessionRow { away, ..row }));
        Some(granted)
    }

    pub(super) fn tell_disconnected(
        &mut self,
        holding: &Link,
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
}

impl Decide<PatchSession> for GroupModel {
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
        let Some(row) = self.sessions.get(session) else {
            return PatchOutcome::NotFound;
        };
        if fields_after(&row.data, data) > MAX_FIELDS {
            return PatchOutcome::Full { of: Limit::Fields };
        }
        if !data.is_empty()
            && let Some(row) = self.sessions.table.change(session)
        {
            merge(Arc::make_mut(&mut row.data), data);
            row.updated_at = now;
        }
        let seen = self.session_seen(session, self.head().resumed_at, now);
        seen.map_or(PatchOutcome::NotFound, |seen| PatchOutcome::Patched(Box::new(seen)))
    }
}

impl Decide<DeleteSession> for GroupModel {
    fn step(&mut self, DeleteSession { session }: &DeleteSession, call: Call, now: StoreTime) -> Result<DeleteOutcome> {
        self.open(now, call)?;
        let Some(record) = self.sessions.get(session) else {
            return Ok(DeleteOutcome::NotFound);
        };
        let epoch = record.epoch;
        let connections = self.sessions.connected(session) as u64;
        if connections > 0 {
            return Ok(DeleteOutcome::Active { connections });
        }
        self.remove_session(session, EventKind::SessionDeleted, None, now);
        Ok(DeleteOutcome::Deleted { epoch })
    }
}

impl GroupModel {
    /// Reaps a session if it is an orphan and the brake permits it.
    pub(super) fn reap_if_over(&mut self, session: &SessionId, now: StoreTime) -> bool {
        let away = self.sessions.get(session).and_then(|record| record.away);
        let over = away.is_some_and(|away| now >= away.over_at(self.head().resumed_at, now));
        if !over || self.brake_in_force(now).is_some() {
            return false;
        }
        self.remove_session(session, EventKind::SessionReaped, None, now);
        true
    }

    /// Deletes a session with its data and alias.
    pub(super) fn remove_session(&mut self, session: &SessionId, kind: EventKind, pass: Option<&str>, now: StoreTime) {
        let Some(record) = self.sessions.set(session, None) else {
            return;
        };
        let event = self.emit(now, kind);
        event.session = Some(session.clone());
        event.epoch = Some(record.epoch);
        event.alias = record.alias;
        event.pass = pass.map(str::to_owned);
    }

    /// Reads a session.
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
        let session = self.sessions.by_alias(&ask.alias);
        Ok(session.and_then(|session| self.session(session, now)))
    }
}

impl GroupModel {
    pub(super) fn session_seen(&self, session: &SessionId, resumed_at: StoreTime, now: StoreTime) -> Option<Session> {
        let record = self.sessions.get(session)?;
        let alive = |(_, held): &(&Link, &ConnectionRow)| self.is_alive(&held.tenure, resumed_at, now);
        let connections = self.sessions.connections_of(session).filter(alive).count() as u64;
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
            data: Data::clone(&record.data),
            epoch: record.epoch,
            created_at: record.created_at,
            updated_at: record.updated_at,
            grace: record.grace,
            disconnected_at: record.away.map(|away| away.reap_at.minus(away.granted)),
            reap_in,
        })
    }
}

fn fields_after(data: &Data, change: &Data) -> usize {
    let (removed, set): (Vec<_>, Vec<_>) = change.iter().partition(|(_, value)| value.is_null());
    let removed = removed.iter().filter(|(field, _)| data.contains_key(*field)).count();
    let new = set.iter().filter(|(field, _)| !data.contains_key(*field)).count();
    data.len() + new - removed
}

fn merge(data: &mut Data, change: &Data) {
    for (field, value) in change {
        match value {
            Value::Null => drop(data.remove(field)),
            value => drop(data.insert(field.clone(), value.clone())),
        }
    }
}
