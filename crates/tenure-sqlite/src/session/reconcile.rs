//! Looks for rows that do not fit together, and repairs them, part by part.
//!
//! No step of this store leaves any behind: an index of SQLite cannot disagree with its rows. But a hand can have edited
//! the file, or a disk can have damaged it. A first walk goes over the sessions, a second one over the connections, each
//! entry on its own and in the transaction of its part, so it is safe beside traffic. What it finds of the kinds of
//! [`drift`]: sessions that are in the index of the disconnected ones and have connections, that are in neither place,
//! or at the wrong place; sessions with fields that nobody can have written; connections without a session, or of a
//! tenure that no janitor knows. An alias, the list of all sessions and what a tenure holds are columns and indexes of
//! the same rows here.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::{Row, params};
use tenure_core::event::EventKind;
use tenure_core::id::{Alias, ConnectionId, SessionId};
use tenure_core::session::{Data, Epoch, MAX_GRACE};
use tenure_core::store::bad_cursor;
use tenure_core::sweep::{Reconciled, drift};
use tenure_core::{Result, StoreTime, TenureId};

use crate::error::Cause;
use crate::event::Draft;
use crate::sql::{instant, number, read_epoch, read_instant, read_name_or_none, read_span_or_none, span, statements};
use crate::step::{Answer, Step};

use super::record::{Away, Record};

statements! { "reconcile.sql":
    SESSIONS = "sessions",
    CONNECTIONS = "connections",
    MEND = "mend",
    MEND_CONNECTION = "mend_connection",
}

/// The most entries of one part.
const PART_MOST: u32 = 1_000;

/// Where a part begins: after what the part before looked at last.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// After this session.
    Session(String),
    /// After this connection of this session; all sessions have been looked at.
    Connection(String, String),
}

impl Place {
    /// Reads a cursor.
    pub(crate) fn parse(cursor: Option<&str>) -> Result<Self> {
        let Some(text) = cursor else {
            return Ok(Self::Session(String::new()));
        };
        let place = || {
            let (walk, rest) = text.split_once('/')?;
            let (length, names) = rest.split_once('/')?;
            let (session, connection) = names.split_at_checked(length.parse().ok()?)?;
            match walk {
                "sessions" => Some(Self::Session(session.to_owned())),
                "connections" => Some(Self::Connection(session.to_owned(), connection.to_owned())),
                _ => None,
            }
        };
        place().ok_or_else(|| bad_cursor(text))
    }

    /// Writes a cursor, with the length of the first name: by a foreign hand it may hold anything.
    fn cursor(&self) -> String {
        match self {
            Self::Session(session) => format!("sessions/{}/{session}", session.len()),
            Self::Connection(session, connection) => format!("connections/{}/{session}{connection}", session.len()),
        }
    }
}

/// What a part has found so far.
type Found = BTreeMap<&'static str, u64>;

/// A session as its row tells, whatever is wrong with it.
struct SessionRow {
    name: String,
    record: Result<Record, Cause>,
    /// What can be read of it when not all can.
    rest: Rest,
    connected: bool,
}

/// The fields of a broken session that are not broken.
struct Rest {
    epoch: Option<Epoch>,
    alias: Option<Alias>,
    grace: Option<Duration>,
    created_at: Option<StoreTime>,
    updated_at: Option<StoreTime>,
    data: Option<String>,
}

/// A connection as its row tells, whatever is wrong with it.
struct ConnectionRow {
    session: String,
    connection: String,
    tenure: String,
    epoch: Option<Epoch>,
    has_session: bool,
    /// Its tenure has ended, and is on the list of those that the janitor visits.
    to_be_released: bool,
}

impl Step<'_> {
    /// One part.
    pub(crate) fn reconcile(&mut self, place: Place, limit: u32) -> Answer<Reconciled> {
        let limit = limit.clamp(1, PART_MOST);
        let (mut left, mut found) = (limit, Found::new());
        let (mut next, mut place) = (None, place);
        if let Place::Session(after) = &place {
            let rows = self.sessions_after(after, left)?;
            left -= u32::try_from(rows.len()).unwrap_or(left);
            next = rows.last().map(|row| Place::Session(row.name.clone()));
            for row in rows {
                self.check_session(row, &mut found)?;
            }
            place = Place::Connection(String::new(), String::new());
        }
        if let (Place::Connection(session, connection), 1..) = (&place, left) {
            let rows = self.connections_after(session, connection, left)?;
            left -= u32::try_from(rows.len()).unwrap_or(left);
            next = rows
                .last()
                .map(|row| Place::Connection(row.session.clone(), row.connection.clone()));
            for row in &rows {
                self.check_connection(row, &mut found)?;
            }
        }
        if !found.is_empty() {
            let mut event = Draft::new(EventKind::SessionsRepaired);
            found.iter().for_each(|(kind, count)| event.count(kind, *count));
            self.emit(event)?;
        }
        Ok(Ok(Reconciled {
            looked_at: u64::from(limit - left),
            repaired: found
                .into_iter()
                .map(|(kind, count)| (kind.to_owned(), count))
                .collect(),
            next: next.filter(|_| left == 0).map(|place| place.cursor()),
        }))
    }

    fn sessions_after(&self, after: &str, limit: u32) -> Result<Vec<SessionRow>, Cause> {
        let mut select = self.sql.prepare_cached(SESSIONS)?;
        let mut rows = select.query(params![self.id, after, limit])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            all.push(SessionRow {
                name: row.get(0)?,
                record: Record::read(row),
                rest: Rest::read(row),
                connected: row.get(10)?,
            });
        }
        Ok(all)
    }

    /// Whether a session can be read, and is in the index of the disconnected ones if and only if it has no connections.
    fn check_session(&mut self, row: SessionRow, found: &mut Found) -> Result<(), Cause> {
        let Ok(session) = SessionId::new(&row.name) else {
            // Nobody can ask for it, and nobody can have made it.
            self.remove_session(&row.name)?;
            *found.entry(drift::BROKEN_SESSION).or_default() += 1;
            return Ok(());
        };
        let away = match row.record {
            Ok(record) => record.away,
            Err(_) => {
                self.mend(&session, row.rest)?;
                *found.entry(drift::BROKEN_SESSION).or_default() += 1;
                None
            }
        };
        match (away, row.connected) {
            (Some(_), true) => {
                self.unlist(session.as_str())?;
                *found.entry(drift::INDEX_OF_ACTIVE).or_default() += 1;
            }
            (Some(away), false) if !self.is_in_place(away) => {
                self.unlist(session.as_str())?;
                self.begin_grace(&session)?;
                *found.entry(drift::SESSION_WITHOUT_INDEX).or_default() += 1;
            }
            (None, false) => {
                self.begin_grace(&session)?;
                *found.entry(drift::SESSION_WITHOUT_INDEX).or_default() += 1;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the reaper comes to this session in time. An entry that is early is only looked at once more.
    fn is_in_place(&self, away: Away) -> bool {
        let longest = MAX_GRACE.max(self.options.sessions.grace);
        away.granted <= longest && away.due <= away.over_at(self.meta.resumed_at, self.now)
    }

    /// Writes what could be read of a session, and something harmless for the rest. Its place in the index is for the
    /// caller to find.
    fn mend(&mut self, session: &SessionId, rest: Rest) -> Result<(), Cause> {
        self.unlist(session.as_str())?;
        let epoch = rest.epoch.map_or_else(|| self.next_number(), Epoch::get);
        self.sql.prepare_cached(MEND)?.execute(params![
            self.id,
            session.as_str(),
            number(epoch),
            rest.alias.as_ref().map(Alias::as_str),
            rest.grace.map(span),
            instant(rest.created_at.unwrap_or(self.now)),
            instant(rest.updated_at.unwrap_or(self.now)),
            rest.data.as_deref().unwrap_or("{}"),
        ])?;
        Ok(())
    }

    fn connections_after(&self, session: &str, connection: &str, limit: u32) -> Result<Vec<ConnectionRow>, Cause> {
        let mut select = self.sql.prepare_cached(CONNECTIONS)?;
        let mut rows = select.query(params![self.id, session, connection, limit])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            all.push(ConnectionRow {
                session: row.get(0)?,
                connection: row.get(1)?,
                tenure: row.get(2)?,
                epoch: read_epoch(row, 3).ok(),
                has_session: row.get(4)?,
                to_be_released: row.get(5)?,
            });
        }
        Ok(all)
    }

    /// Whether a connection has a session, and a tenure that lives or that the janitor will come to; and its age.
    fn check_connection(&mut self, row: &ConnectionRow, found: &mut Found) -> Result<(), Cause> {
        if !row.has_session {
            self.drop_connection(&row.session, &row.connection, &row.tenure)?;
            self.strike_if_empty(&row.tenure)?;
            *found.entry(drift::CONNECTION_WITHOUT_SESSION).or_default() += 1;
            return Ok(());
        }
        let tenure: Option<TenureId> = row.tenure.parse().ok();
        let known = row.to_be_released || tenure.as_ref().is_some_and(|tenure| self.is_current(tenure));
        if !known || ConnectionId::new(&row.connection).is_err() {
            return self.drop_for(row, tenure.as_ref(), drift::GHOST_CONNECTION, "ghost", found);
        }
        let Some(epoch) = row.epoch else {
            let epoch = self.next_number();
            let mut mend = self.sql.prepare_cached(MEND_CONNECTION)?;
            mend.execute(params![self.id, row.session, row.connection, number(epoch)])?;
            *found.entry(drift::BROKEN_SESSION).or_default() += 1;
            return Ok(());
        };
        // The epoch tells when it was attached: it is made from the store's clock.
        let attached_at = StoreTime::from_micros(epoch.get());
        match self.options.sessions.max_age {
            Some(most) if attached_at + most <= self.now => {
                self.drop_for(row, tenure.as_ref(), drift::AGED_CONNECTION, "max_age", found)
            }
            _ => Ok(()),
        }
    }

    /// Takes a connection from its session, unless this is a time in which nothing is taken from anybody.
    fn drop_for(
        &mut self,
        row: &ConnectionRow,
        tenure: Option<&TenureId>,
        kind: &'static str,
        reason: &str,
        found: &mut Found,
    ) -> Result<(), Cause> {
        let braked = self.meta.brake_in_force(&self.options.brake, self.now).is_some();
        if braked || self.meta.unsettled.is_some() {
            return Ok(());
        }
        self.drop_connection(&row.session, &row.connection, &row.tenure)?;
        self.strike_if_empty(&row.tenure)?;
        *found.entry(kind).or_default() += 1;
        let Ok(session) = SessionId::new(&row.session) else {
            return Ok(());
        };
        match ConnectionId::new(&row.connection) {
            Ok(connection) => {
                if let Some(left) = self.disconnect_if_last(&session, &connection)? {
                    self.tell_disconnected(&left, tenure, reason, None)?;
                }
            }
            // Nobody can be told its name.
            Err(_) if self.is_connected(session.as_str())? => {}
            Err(_) => drop(self.begin_grace(&session)?),
        }
        Ok(())
    }
}

impl Rest {
    fn read(row: &Row<'_>) -> Self {
        let data = row.get::<_, String>(9).ok();
        Self {
            epoch: read_epoch(row, 1).ok(),
            alias: read_name_or_none(row, 2).unwrap_or_default(),
            grace: read_span_or_none(row, 3).unwrap_or_default(),
            created_at: read_instant(row, 4).ok(),
            updated_at: read_instant(row, 5).ok(),
            data: data.filter(|text| serde_json::from_str::<Data>(text).is_ok()),
        }
    }
}
