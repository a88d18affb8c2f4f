//! The log of changes, written by triggers.

use rusqlite::{Connection, Row, params};
use tenure_core::ProviderId;
use tenure_core::ledger::{Change, LogEntry, Reason, Version};
use tenure_core::store::Page;

use super::rows::{many, page};
use crate::error::Cause;
use crate::sql::{number, read_instant, read_name, read_number, statements};

statements! { "ledger/log.sql":
    ALL = "all",
    OF_PROVIDER = "of_provider",
}

fn read_entry(row: &Row<'_>) -> Result<LogEntry, Cause> {
    let (change, reason): (String, String) = (row.get(2)?, row.get(3)?);
    Ok(LogEntry {
        id: read_number(row, 0)?,
        provider: read_name(row, 1)?,
        change: Change::parse(&change).ok_or(Cause::Strange(change))?,
        // Others may give reasons of their own.
        reason: Reason::parse(&reason).unwrap_or(Reason::Edited),
        at: read_instant(row, 4)?,
        version: Version(read_number(row, 5)?),
    })
}

pub(super) fn read(
    sql: &Connection,
    roster: &str,
    provider: Option<&ProviderId>,
    after: u64,
    limit: u32,
) -> Result<Page<LogEntry>, Cause> {
    let (after, most) = (number(after), limit + 1);
    let entries = match provider {
        None => many(sql, ALL, params![roster, after, most], read_entry)?,
        Some(provider) => {
            let params = params![roster, after, most, provider.as_str()];
            many(sql, OF_PROVIDER, params, read_entry)?
        }
    };
    Ok(page(entries, limit, |entry| entry.id.to_string()))
}
