//! Rosters: the ledger's rows and what is known of them.

use std::time::Duration;

use rusqlite::{Statement, params};
use tenure_core::ledger::{Provider, RosterSettings, Version};
use tenure_core::membership::EndReason;
use tenure_core::memory::rows::{OfflinedRow, ProviderRow, RemovedRow, RosterRow, Row, RowKey, TurnRow};
use tenure_core::roster::Task;
use tenure_core::{MemberId, StoreTime};

use super::{Table, mixed_up, strange};
use crate::error::Cause;
use crate::sql::{
    instant, number, read_instant, read_instant_or_none, read_name, read_name_or_none, read_number, read_span, span,
    table,
};

pub(super) static MARKS: Table = Table::new(0, table!("roster.sql", "rosters"), read_marks, put_marks).expendable();

pub(super) static RETIMING: Table = Table::new(
    0,
    table!("roster.sql", "retiming"),
    |row| {
        let text: String = row.get(0)?;
        let member = (!text.is_empty()).then(|| MemberId::new(&text)).transpose();
        Ok((RowKey::Retiming, Row::Retiming(member.map_err(strange)?)))
    },
    |put, id, key, row| match row {
        Row::Retiming(member) => {
            put.execute(params![id, member.as_ref().map_or("", |member| member.as_str())])?;
            Ok(())
        }
        _ => Err(mixed_up(key)),
    },
)
.expendable();

pub(super) static PROVIDERS: Table = Table::new(1, table!("roster.sql", "providers"), read, put).expendable();

pub(super) static REMOVED: Table = Table::new(
    1,
    table!("roster.sql", "removed"),
    |row| {
        let removed = RemovedRow {
            version: Version(read_number(row, 1)?),
            at: read_instant(row, 2)?,
        };
        Ok((RowKey::Removed(read_name(row, 0)?), Row::Removed(removed)))
    },
    |put, id, key, row| match (key, row) {
        (RowKey::Removed(provider), Row::Removed(row)) => {
            put.execute(params![id, provider.as_str(), number(row.version.0), instant(row.at)])?;
            Ok(())
        }
        _ => Err(mixed_up(key)),
    },
)
.expendable();

pub(super) static OFFLINED: Table =
    Table::new(1, table!("roster.sql", "offlined"), read_offlined, put_offlined).expendable();

pub(super) static TURNS: Table = Table::new(1, table!("roster.sql", "turns"), read_turn, put_turn).expendable();

fn read_marks(row: &rusqlite::Row<'_>) -> Result<(RowKey, Row), Cause> {
    let settings = match row.get_ref(2)? {
        rusqlite::types::ValueRef::Null => None,
        _ => Some(RosterSettings {
            version: Version(read_number(row, 2)?),
            default_capacity: row.get(3)?,
            stale_after: read_span(row, 4)?,
            require_heartbeat: row.get(5)?,
            snapshot: read_span(row, 6)?,
        }),
    };
    let marks = RosterRow {
        high: Version(read_number(row, 0)?),
        seeded: row.get(1)?,
        settings,
    };
    Ok((RowKey::Roster, Row::Roster(marks)))
}

fn put_marks(put: &mut Statement<'_>, id: i64, key: &RowKey, row: &Row) -> Result<(), Cause> {
    let Row::Roster(marks) = row else {
        return Err(mixed_up(key));
    };
    let settings = marks.settings.as_ref();
    let of = |part: fn(&RosterSettings) -> Duration| settings.map(|settings| span(part(settings)));
    put.execute(params![
        id,
        number(marks.high.0),
        marks.seeded,
        settings.map(|settings| number(settings.version.0)),
        settings.map(|settings| settings.default_capacity),
        of(|settings| settings.stale_after),
        settings.map(|settings| settings.require_heartbeat),
        of(|settings| settings.snapshot),
    ])?;
    Ok(())
}

fn read(row: &rusqlite::Row<'_>) -> Result<(RowKey, Row), Cause> {
    let provider = Provider {
        provider: read_name(row, 0)?,
        display_name: row.get(1)?,
        active: row.get(2)?,
        online: read_name_or_none(row, 3)?,
        capacity: row.get(4)?,
        occupancy: row.get(5)?,
        last_online_at: read_instant_or_none(row, 6)?,
        last_offline_at: read_instant_or_none(row, 7)?,
        last_heartbeat_at: None,
        revoked_before: read_instant_or_none(row, 8)?,
        version: Version(read_number(row, 9)?),
    };
    let key = RowKey::Provider(provider.provider.clone());
    let followed = row.get(10)?;
    Ok((key, Row::Provider(ProviderRow { provider, followed })))
}

fn put(put: &mut Statement<'_>, id: i64, key: &RowKey, row: &Row) -> Result<(), Cause> {
    let Row::Provider(ProviderRow { provider, followed }) = row else {
        return Err(mixed_up(key));
    };
    put.execute(params![
        id,
        provider.provider.as_str(),
        number(provider.version.0),
        provider.display_name,
        provider.active,
        provider.online.as_ref().map(ToString::to_string),
        provider.capacity,
        provider.occupancy,
        provider.last_online_at.map(instant),
        provider.last_offline_at.map(instant),
        provider.revoked_before.map(instant),
        followed,
    ])?;
    Ok(())
}

fn read_offlined(row: &rusqlite::Row<'_>) -> Result<(RowKey, Row), Cause> {
    let reason: String = row.get(3)?;
    let offlined = OfflinedRow {
        ended_at: read_instant(row, 1)?,
        at: read_instant(row, 2)?,
        reason: EndReason::parse(&reason).ok_or_else(|| strange(format!("the reason {reason:?}")))?,
        heard_at: read_instant_or_none(row, 4)?,
    };
    Ok((RowKey::Offlined(read_name(row, 0)?), Row::Offlined(offlined)))
}

fn put_offlined(put: &mut Statement<'_>, id: i64, key: &RowKey, row: &Row) -> Result<(), Cause> {
    let (RowKey::Offlined(tenure), Row::Offlined(row)) = (key, row) else {
        return Err(mixed_up(key));
    };
    put.execute(params![
        id,
        tenure.to_string(),
        row.reason == EndReason::Lapsed,
        instant(row.ended_at),
        instant(row.at),
        row.reason.as_str(),
        row.heard_at.map(instant),
    ])?;
    Ok(())
}

fn read_turn(row: &rusqlite::Row<'_>) -> Result<(RowKey, Row), Cause> {
    let task: String = row.get(0)?;
    let task = Task::parse(&task).ok_or_else(|| strange(format!("the task {task:?}")))?;
    let holder: Option<String> = row.get(1)?;
    let until: Option<StoreTime> = read_instant_or_none(row, 2)?;
    let turn = TurnRow {
        holder: holder.zip(until),
        done_at: read_instant_or_none(row, 3)?,
    };
    Ok((RowKey::Turn(task), Row::Turn(turn)))
}

fn put_turn(put: &mut Statement<'_>, id: i64, key: &RowKey, row: &Row) -> Result<(), Cause> {
    let (RowKey::Turn(task), Row::Turn(row)) = (key, row) else {
        return Err(mixed_up(key));
    };
    let holder = row.holder.as_ref();
    put.execute(params![
        id,
        task.as_str(),
        holder.map(|(holder, _)| holder),
        holder.map(|(_, until)| instant(*until)),
        row.done_at.map(instant),
    ])?;
    Ok(())
}
