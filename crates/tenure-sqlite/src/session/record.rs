//! A session as its row tells, with its connections.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::{Connection, Row, params};
use serde_json::Value;
use tenure_core::id::{Alias, ConnectionId, SessionId};
use tenure_core::session::{Data, Epoch, Session, SessionState};
use tenure_core::settling::end_of;
use tenure_core::{StoreTime, TenureId};

use crate::error::Cause;
use crate::sql::{
    read_epoch, read_instant, read_instant_or_none, read_name, read_name_or_none, read_span_or_none, statements,
};

statements! { "session.sql":
    ONE = "one",
    CONNECTIONS = "connections",
}

/// A session without connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Away {
    /// When its grace is over, as it was fixed when the last connection went.
    pub(super) reap_at: StoreTime,
    /// The grace.
    pub(super) granted: Duration,
    /// Its place in the lazy index.
    pub(super) due: StoreTime,
}

impl Away {
    /// Reads it from three columns, empty while there are connections.
    fn read(row: &Row<'_>, first: usize) -> Result<Option<Self>, Cause> {
        let (reap_at, granted) = (read_instant_or_none(row, first)?, read_span_or_none(row, first + 1)?);
        match (reap_at, granted, read_instant_or_none(row, first + 2)?) {
            (Some(reap_at), Some(granted), Some(due)) => Ok(Some(Self { reap_at, granted, due })),
            (None, None, None) => Ok(None),
            _ => Err(Cause::Strange("half of a place in the index of sessions".to_owned())),
        }
    }

    /// When it is an orphan: like the end of a tenure, a gap gives everyone the whole time anew.
    pub(super) fn over_at(self, resumed_at: StoreTime, now: StoreTime) -> StoreTime {
        end_of(self.reap_at, self.granted, resumed_at, now)
    }
}

/// One session.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) session: SessionId,
    pub(super) epoch: Epoch,
    pub(super) alias: Option<Alias>,
    pub(super) grace: Option<Duration>,
    pub(super) created_at: StoreTime,
    pub(super) updated_at: StoreTime,
    pub(super) away: Option<Away>,
    pub(super) data: Data,
    /// Which tenure holds which connection. They have rows of their own, and are filled in apart.
    pub(super) connections: BTreeMap<ConnectionId, TenureId>,
}

impl Record {
    /// One that is made now.
    pub(super) fn new(session: SessionId, epoch: Epoch, now: StoreTime) -> Self {
        Self {
            session,
            epoch,
            alias: None,
            grace: None,
            created_at: now,
            updated_at: now,
            away: None,
            data: Data::new(),
            connections: BTreeMap::new(),
        }
    }

    /// Reads it from the columns that all statements of sessions begin with, without its connections.
    pub(super) fn read(row: &Row<'_>) -> Result<Self, Cause> {
        let data = row.get_ref(9)?.as_str().map_err(rusqlite::Error::from);
        Ok(Self {
            session: read_name(row, 0)?,
            epoch: read_epoch(row, 1)?,
            alias: read_name_or_none(row, 2)?,
            grace: read_span_or_none(row, 3)?,
            created_at: read_instant(row, 4)?,
            updated_at: read_instant(row, 5)?,
            away: Away::read(row, 6)?,
            data: serde_json::from_str(data?).map_err(|error| Cause::Strange(error.to_string()))?,
            connections: BTreeMap::new(),
        })
    }

    /// Fills in its connections. One that nobody can have attached is left to reconcile.
    pub(super) fn fill_in(&mut self, sql: &Connection, id: i64) -> Result<(), Cause> {
        let mut select = sql.prepare_cached(CONNECTIONS)?;
        let mut rows = select.query(params![id, self.session.as_str()])?;
        while let Some(row) = rows.next()? {
            if let (Ok(connection), Ok(tenure)) = (read_name(row, 0), read_name(row, 1)) {
                self.connections.insert(connection, tenure);
            }
        }
        Ok(())
    }

    /// Its data as the column has it.
    pub(super) fn data_text(&self) -> Result<String, Cause> {
        serde_json::to_string(&self.data).map_err(|error| Cause::Strange(error.to_string()))
    }

    /// The session as it is told, by whose connections count.
    pub(super) fn seen(self, alive: impl Fn(&TenureId) -> bool, resumed_at: StoreTime, now: StoreTime) -> Session {
        let connections = self.connections.values().filter(|tenure| alive(tenure)).count() as u64;
        let reap_in = self.away.map(|away| away.over_at(resumed_at, now).since(now));
        Session {
            session: self.session,
            state: match reap_in {
                Some(Duration::ZERO) => SessionState::Orphan,
                None if connections > 0 => SessionState::Active,
                _ => SessionState::Disconnected,
            },
            connections,
            alias: self.alias,
            data: self.data,
            epoch: self.epoch,
            created_at: self.created_at,
            updated_at: self.updated_at,
            grace: self.grace,
            disconnected_at: self.away.map(|away| away.reap_at.minus(away.granted)),
            reap_in,
        }
    }
}

/// Looks a session up with its connections.
pub(super) fn record(sql: &Connection, id: i64, session: &str) -> Result<Option<Record>, Cause> {
    record_by(sql, ONE, id, session)
}

/// The same, by a statement that finds one by something else.
pub(super) fn record_by(sql: &Connection, select: &str, id: i64, by: &str) -> Result<Option<Record>, Cause> {
    let mut look = sql.prepare_cached(select)?;
    let mut rows = look.query(params![id, by])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let mut record = Record::read(row)?;
    drop(rows);
    record.fill_in(sql, id)?;
    Ok(Some(record))
}

/// Applies a change to the data of a session: `null` removes a field.
pub(super) fn merge(data: &mut Data, change: &Data) {
    for (field, value) in change {
        match value {
            Value::Null => drop(data.remove(field)),
            value => drop(data.insert(field.clone(), value.clone())),
        }
    }
}
