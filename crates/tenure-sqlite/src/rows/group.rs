//! What a group knows about itself.

use std::time::Duration;

use rusqlite::{Connection, params};
use tenure_core::event::EventId;
use tenure_core::memory::rows::GroupRow;
use tenure_core::settling::GapCause;
use tenure_core::sweep::Unsettled;
use tenure_core::{Group, StoreTime};

use super::strange;
use crate::error::Cause;
use crate::sql::{instant, number, read_instant, read_instant_or_none, read_name, read_number, span, statements};

statements! { "group.sql":
    INSERT = "insert",
    UPDATE = "update",
    ALL = "all",
    ONE = "one",
    FORGET_EVENTS = "forget_events",
    FORGET_LAPSES = "forget_lapses",
    FORGET = "forget",
}

/// A group as the file has it.
#[derive(Debug)]
pub(crate) struct StoredGroup {
    /// The id of its rows.
    pub(crate) id: i64,
    pub(crate) group: Group,
    /// No event below this number is kept: one above the newest that was deleted.
    pub(crate) oldest_event: u64,
    pub(crate) row: GroupRow,
}

/// Reads all groups.
pub(crate) fn all_groups(sql: &Connection) -> Result<Vec<StoredGroup>, Cause> {
    let mut all = sql.prepare_cached(ALL)?;
    let mut rows = all.query([])?;
    let mut groups = Vec::new();
    while let Some(row) = rows.next()? {
        groups.push(read(row)?);
    }
    Ok(groups)
}

/// Reads one group.
pub(crate) fn one_group(sql: &Connection, group: &Group) -> Result<Option<StoredGroup>, Cause> {
    let mut one = sql.prepare_cached(ONE)?;
    let mut rows = one.query([group.as_str()])?;
    rows.next()?.map(read).transpose()
}

/// Makes the row of a group. Answers the id of its rows.
pub(crate) fn insert_group(sql: &Connection, group: &Group, born_at: StoreTime) -> Result<i64, Cause> {
    sql.prepare_cached(INSERT)?
        .execute(params![group.as_str(), instant(born_at)])?;
    Ok(sql.last_insert_rowid())
}

/// Writes what a group knows about itself.
pub(crate) fn update_group(sql: &Connection, id: i64, row: &GroupRow, oldest_event: u64) -> Result<(), Cause> {
    sql.prepare_cached(UPDATE)?.execute(params![
        id,
        instant(row.tick),
        instant(row.resumed_at),
        number(row.seq),
        number(row.last_event.0),
        number(oldest_event),
        row.ttls.map(|(shortest, _)| span(shortest)),
        row.ttls.map(|(_, longest)| span(longest)),
        row.unsettled.map(|unsettled| unsettled.cause.as_str()),
        row.unsettled.map(|unsettled| instant(unsettled.until)),
        row.brake.map(|(since, _)| instant(since)),
        row.brake.map(|(_, until)| instant(until)),
        instant(row.settled),
    ])?;
    Ok(())
}

/// Removes a group that has nothing left but its log.
pub(crate) fn remove_group(sql: &Connection, id: i64) -> Result<(), Cause> {
    for rows in [FORGET_EVENTS, FORGET_LAPSES, FORGET] {
        sql.prepare_cached(rows)?.execute([id])?;
    }
    Ok(())
}

fn read(row: &rusqlite::Row<'_>) -> Result<StoredGroup, Cause> {
    let span = |column| Ok::<_, Cause>(read_instant_or_none(row, column)?.map(|at| Duration::from_micros(at.micros())));
    let cause: Option<String> = row.get(10)?;
    let cause = cause
        .map(|cause| GapCause::parse(&cause).ok_or_else(|| strange(format!("the cause {cause:?}"))))
        .transpose()?;
    let unsettled = cause.zip(read_instant_or_none(row, 11)?);
    Ok(StoredGroup {
        id: row.get(0)?,
        group: read_name(row, 1)?,
        oldest_event: read_number(row, 7)?,
        row: GroupRow {
            born_at: read_instant(row, 2)?,
            tick: read_instant(row, 3)?,
            resumed_at: read_instant(row, 4)?,
            seq: read_number(row, 5)?,
            last_event: EventId(read_number(row, 6)?),
            ttls: span(8)?.zip(span(9)?),
            unsettled: unsettled.map(|(cause, until)| Unsettled { cause, until }),
            brake: read_instant_or_none(row, 12)?.zip(read_instant_or_none(row, 13)?),
            settled: read_instant(row, 14)?,
        },
    })
}
