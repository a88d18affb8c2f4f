//! A provider's row in the file.

use rusqlite::{Connection, Row, params};
use tenure_core::ProviderId;
use tenure_core::ledger::{Provider, Version};

use super::table::Head;
use crate::error::Cause;
use crate::sql::{instant, number, read_instant_or_none, read_name, read_name_or_none, read_number, statements};

statements! { "roster.sql":
    ALL = "all",
    UPSERT = "upsert",
}

/// Reads a row from the first ten columns. When it was heard of is not among them.
pub(super) fn read_row(row: &Row<'_>) -> Result<Provider, Cause> {
    Ok(Provider {
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
    })
}

/// Writes a row over whatever is there.
pub(super) fn write_row(sql: &Connection, id: i64, row: &Provider) -> Result<(), Cause> {
    sql.prepare_cached(UPSERT)?.execute(params![
        id,
        row.provider.as_str(),
        number(row.version.0),
        row.display_name,
        row.active,
        row.online.as_ref().map(ToString::to_string),
        row.capacity,
        row.occupancy,
        row.last_online_at.map(instant),
        row.last_offline_at.map(instant),
        row.revoked_before.map(instant),
    ])?;
    Ok(())
}

/// Reads what memory needs of all rows of a group. One that cannot be read counts as missing until it is told anew or
/// removed.
pub(crate) fn read_heads(sql: &Connection, id: i64) -> Result<Vec<(ProviderId, Head)>, Cause> {
    let mut select = sql.prepare_cached(ALL)?;
    let mut rows = select.query([id])?;
    let mut heads = Vec::new();
    while let Some(row) = rows.next()? {
        match read_row(row) {
            Ok(row) => heads.push((row.provider.clone(), Head::of(&row))),
            Err(cause) => tracing::warn!(%cause, "the row of a provider cannot be read; verify removes it"),
        }
    }
    Ok(heads)
}
