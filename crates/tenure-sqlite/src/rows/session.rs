//! Sessions and their connections.

use std::sync::Arc;

use rusqlite::{Connection, Statement, params};
use tenure_core::memory::rows::{Away, ConnectionRow, Row, RowKey, SessionRow};

use super::{Table, mixed_up, strange};
use crate::error::Cause;
use crate::sql::{
    instant, number, read_epoch, read_instant, read_instant_or_none, read_name, read_name_or_none, read_span_or_none,
    span, statements, table,
};

statements! { "session.sql":
    FREE_ALIAS = "free_alias",
}

pub(super) static SESSIONS: Table = Table::new(1, table!("session.sql", "sessions"), read, put).expendable();

pub(super) static CONNECTIONS: Table =
    Table::new(2, table!("session.sql", "connections"), read_connection, put_connection).expendable();

/// Takes the aliases from sessions that are about to be written. An alias may have moved from one of them to another, and
/// no two rows can have it, in whatever order they are written.
pub(crate) fn free_aliases(sql: &Connection, id: i64, rows: &[(RowKey, Option<Row>)]) -> Result<(), Cause> {
    let takes_one = |(_, row): &(RowKey, Option<Row>)| matches!(row, Some(Row::Session(row)) if row.alias.is_some());
    if !rows.iter().any(takes_one) {
        return Ok(());
    }
    let mut free = sql.prepare_cached(FREE_ALIAS)?;
    for (key, _) in rows {
        if let RowKey::Session(session) = key {
            free.execute(params![id, session.as_str()])?;
        }
    }
    Ok(())
}

fn read(row: &rusqlite::Row<'_>) -> Result<(RowKey, Row), Cause> {
    let data = row.get_ref(9)?.as_str().map_err(strange)?;
    let session = SessionRow {
        epoch: read_epoch(row, 1)?,
        alias: read_name_or_none(row, 2)?,
        grace: read_span_or_none(row, 3)?,
        created_at: read_instant(row, 4)?,
        updated_at: read_instant(row, 5)?,
        away: read_away(row, 6)?,
        data: Arc::new(serde_json::from_str(data).map_err(strange)?),
    };
    Ok((RowKey::Session(read_name(row, 0)?), Row::Session(session)))
}

/// Reads it from three columns, empty while there are connections.
fn read_away(row: &rusqlite::Row<'_>, first: usize) -> Result<Option<Away>, Cause> {
    let (reap_at, granted) = (read_instant_or_none(row, first)?, read_span_or_none(row, first + 1)?);
    match (reap_at, granted, read_instant_or_none(row, first + 2)?) {
        (Some(reap_at), Some(granted), Some(due)) => Ok(Some(Away { reap_at, granted, due })),
        (None, None, None) => Ok(None),
        _ => Err(strange("half of a place in the index of sessions")),
    }
}

fn put(put: &mut Statement<'_>, id: i64, key: &RowKey, row: &Row) -> Result<(), Cause> {
    let (RowKey::Session(session), Row::Session(row)) = (key, row) else {
        return Err(mixed_up(key));
    };
    put.execute(params![
        id,
        session.as_str(),
        number(row.epoch.get()),
        row.alias.as_ref().map(|alias| alias.as_str()),
        row.grace.map(span),
        instant(row.created_at),
        instant(row.updated_at),
        row.away.map(|away| instant(away.reap_at)),
        row.away.map(|away| span(away.granted)),
        row.away.map(|away| instant(away.due)),
        serde_json::to_string(&*row.data).map_err(strange)?,
    ])?;
    Ok(())
}

fn read_connection(row: &rusqlite::Row<'_>) -> Result<(RowKey, Row), Cause> {
    let connection = ConnectionRow {
        tenure: read_name(row, 2)?,
        epoch: read_epoch(row, 3)?,
    };
    let key = RowKey::Connection(read_name(row, 0)?, read_name(row, 1)?);
    Ok((key, Row::Connection(connection)))
}

fn put_connection(put: &mut Statement<'_>, id: i64, key: &RowKey, row: &Row) -> Result<(), Cause> {
    let (RowKey::Connection(session, connection), Row::Connection(row)) = (key, row) else {
        return Err(mixed_up(key));
    };
    put.execute(params![
        id,
        session.as_str(),
        connection.as_str(),
        row.tenure.to_string(),
        number(row.epoch.get()),
    ])?;
    Ok(())
}
