//! What becomes of connections whose tenure has ended, and of sessions whose grace is over.

use rusqlite::{Connection, Row, params};
use tenure_core::event::EventKind;
use tenure_core::id::{Alias, SessionId};
use tenure_core::session::Epoch;
use tenure_core::sweep::{Reaped, ReapedBatch, ReleaseRequest};
use tenure_core::{StoreTime, TenureId};

use crate::error::Cause;
use crate::event::Draft;
use crate::sql::{instant, read_epoch, read_instant, read_name, read_name_or_none, read_span, statements};
use crate::step::{Answer, Step};

use super::detach::Left;
use super::record::Away;

statements! { "session.sql":
    DUE = "due",
    PUT_OFF = "put_off",
    UNLIST = "unlist",
    HELD = "held",
}

/// The connections that were removed from an ended tenure.
#[derive(Default)]
pub(crate) struct Gone {
    pub(crate) looked_at: u32,
    /// Connections are left.
    pub(crate) more: bool,
    pub(crate) removed: u64,
    /// The sessions that have lost their last one.
    pub(crate) last: Vec<Left>,
}

/// An entry of the index of disconnected sessions whose time has come.
pub(super) struct Due {
    /// As it stands in the row.
    name: String,
    /// What it names, when that is a disconnected session.
    pub(super) found: Option<Found>,
}

/// A disconnected session.
pub(super) struct Found {
    pub(super) session: SessionId,
    pub(super) epoch: Epoch,
    alias: Option<Alias>,
    pub(super) away: Away,
}

impl Found {
    fn read(row: &Row<'_>) -> Result<Self, Cause> {
        let reap_at = read_instant(row, 3)?;
        Ok(Self {
            session: read_name(row, 0)?,
            epoch: read_epoch(row, 1)?,
            alias: read_name_or_none(row, 2)?,
            away: Away {
                reap_at,
                granted: read_span(row, 4)?,
                due: reap_at,
            },
        })
    }
}

/// The first entries of the index that are due at `until`, in order.
pub(super) fn due_by(sql: &Connection, id: i64, until: StoreTime, limit: u32) -> Result<Vec<Due>, Cause> {
    let mut select = sql.prepare_cached(DUE)?;
    let mut rows = select.query(params![id, instant(until), limit])?;
    let mut due = Vec::new();
    while let Some(row) = rows.next()? {
        let connected: bool = row.get(5)?;
        due.push(Due {
            name: row.get(0)?,
            found: Found::read(row).ok().filter(|_| !connected),
        });
    }
    Ok(due)
}

impl Step<'_> {
    /// Removes up to `room` connections of an ended tenure, in order.
    pub(crate) fn release_connections(&mut self, tenure: &TenureId, room: u32) -> Result<Gone, Cause> {
        let text = tenure.to_string();
        let mut held: Vec<(String, String)> = self
            .sql
            .prepare_cached(HELD)?
            .query_map(params![self.id, text, room + 1], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let mut gone = Gone {
            more: held.len() > room as usize,
            ..Gone::default()
        };
        held.truncate(room as usize);
        for (session, connection) in held {
            self.drop_connection(&session, &connection, &text)?;
            gone.looked_at += 1;
            gone.removed += 1;
            if let (Ok(session), Ok(connection)) = (session.parse(), connection.parse()) {
                gone.last.extend(self.disconnect_if_last(&session, &connection)?);
            }
        }
        Ok(gone)
    }

    /// Step 3 of a pass.
    pub(crate) fn reap(&mut self, request: &ReleaseRequest) -> Answer<ReapedBatch> {
        self.lift_brake(request.force)?;
        let braked = self.meta.brake_in_force(&self.options.brake, self.now);
        let mut batch = ReapedBatch {
            braked,
            ..ReapedBatch::default()
        };
        if batch.braked.is_some() {
            return Ok(Ok(batch));
        }
        for due in due_by(self.sql, self.id, self.now, request.limit)? {
            match due.found {
                Some(found) => batch.reaped.extend(self.reap_one(found, &request.pass)?),
                None => {
                    self.unlist(&due.name)?;
                    batch.skipped += 1;
                }
            }
        }
        batch.more = !due_by(self.sql, self.id, self.now, 1)?.is_empty();
        Ok(Ok(batch))
    }

    /// Deletes a session if its grace is over; else its entry moves to where it belongs.
    fn reap_one(&mut self, found: Found, pass: &str) -> Result<Option<Reaped>, Cause> {
        let Found {
            session,
            epoch,
            alias,
            away,
        } = found;
        let over_at = away.over_at(self.meta.resumed_at, self.now);
        if self.now < over_at {
            let mut put_off = self.sql.prepare_cached(PUT_OFF)?;
            put_off.execute(params![self.id, session.as_str(), instant(over_at)])?;
            *self.lists_changed = true;
            return Ok(None);
        }
        self.remove_session(session.as_str())?;
        let event = Draft::new(EventKind::SessionReaped).in_pass(pass);
        self.emit(event.session(&session, Some(epoch), alias.as_ref()))?;
        Ok(Some(Reaped { session, epoch }))
    }

    /// Takes an entry out of the index of disconnected sessions. The session stays.
    pub(super) fn unlist(&mut self, session: &str) -> Result<(), Cause> {
        let mut unlist = self.sql.prepare_cached(UNLIST)?;
        let listed = unlist.execute(params![self.id, session])?;
        drop(unlist);
        if listed > 0 {
            self.away_changed(-1);
        }
        Ok(())
    }
}
