//! Members, ended tenures, and who lapsed lately.

use rusqlite::{Statement, params};
use tenure_core::membership::{EndReason, Revision};
use tenure_core::memory::rows::{EndedRow, MemberRow, Row, RowKey};
use tenure_core::{MemberId, Term};

use super::{Table, mixed_up, strange};
use crate::error::Cause;
use crate::sql::{instant, number, read_instant, read_instant_or_none, read_name, read_number, read_span, span, table};

pub(super) static MEMBERS: Table = Table::new(1, table!("membership.sql", "members"), read_member, put_member);

pub(super) static ENDED: Table = Table::new(1, table!("membership.sql", "ended"), read_ended, put_ended);

pub(super) static LAPSES: Table = Table::new(
    1,
    table!("membership.sql", "lapses"),
    |row| {
        let member: MemberId = read_name(row, 0)?;
        Ok((RowKey::Lapse(member), Row::Lapse(read_instant(row, 1)?)))
    },
    |put, id, key, row| match (key, row) {
        (RowKey::Lapse(member), Row::Lapse(at)) => {
            put.execute(params![id, member.as_str(), instant(*at)])?;
            Ok(())
        }
        _ => Err(mixed_up(key)),
    },
);

fn read_member(row: &rusqlite::Row<'_>) -> Result<(RowKey, Row), Cause> {
    let labels = row.get_ref(4)?.as_str().map_err(strange)?;
    let member = MemberRow {
        term: Term::new(read_number(row, 1)?).map_err(strange)?,
        ttl: read_span(row, 2)?,
        deadline: read_instant(row, 3)?,
        labels: serde_json::from_str(labels).map_err(strange)?,
        revision: Revision(read_number(row, 5)?),
    };
    Ok((RowKey::Member(read_name(row, 0)?), Row::Member(member)))
}

fn put_member(put: &mut Statement<'_>, id: i64, key: &RowKey, row: &Row) -> Result<(), Cause> {
    let (RowKey::Member(member), Row::Member(row)) = (key, row) else {
        return Err(mixed_up(key));
    };
    put.execute(params![
        id,
        member.as_str(),
        number(row.term.get()),
        span(row.ttl),
        instant(row.deadline),
        serde_json::to_string(&row.labels).map_err(strange)?,
        number(row.revision.0),
    ])?;
    Ok(())
}

fn read_ended(row: &rusqlite::Row<'_>) -> Result<(RowKey, Row), Cause> {
    let reason: String = row.get(1)?;
    let ended = EndedRow {
        reason: EndReason::parse(&reason).ok_or_else(|| strange(format!("the reason {reason:?}")))?,
        end: read_instant(row, 2)?,
        at: read_instant(row, 3)?,
        forget_at: read_instant(row, 4)?,
        visit: read_instant_or_none(row, 5)?,
    };
    Ok((RowKey::Ended(read_name(row, 0)?), Row::Ended(ended)))
}

fn put_ended(put: &mut Statement<'_>, id: i64, key: &RowKey, row: &Row) -> Result<(), Cause> {
    let (RowKey::Ended(tenure), Row::Ended(row)) = (key, row) else {
        return Err(mixed_up(key));
    };
    put.execute(params![
        id,
        tenure.to_string(),
        row.reason.as_str(),
        row.reason == EndReason::Lapsed,
        instant(row.end),
        instant(row.at),
        instant(row.forget_at),
        row.visit.map(instant),
    ])?;
    Ok(())
}
