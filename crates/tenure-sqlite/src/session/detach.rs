//! Detaching, and the beginning of a grace.

use std::time::Duration;

use rusqlite::params;
use tenure_core::TenureId;
use tenure_core::event::EventKind;
use tenure_core::id::{Alias, ConnectionId, SessionId};
use tenure_core::session::{Detach, DetachOutcome, Epoch};

use crate::error::Cause;
use crate::event::Draft;
use crate::sql::{instant, read_epoch, read_name, read_name_or_none, read_span, span, statements};
use crate::step::{Answer, Step};

statements! { "session.sql":
    DISCONNECT = "disconnect",
    CONNECTED = "connected",
    HOLDER = "holder",
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
}
