//! Targets.

use rusqlite::{Statement, params};
use tenure_core::memory::rows::{Row, RowKey};
use tenure_core::target::TargetSpec;

use super::{Table, mixed_up};
use crate::error::Cause;
use crate::sql::{read_name, table};

pub(super) static TARGETS: Table = Table::new(1, table!("target.sql", "targets"), read, put);

fn read(row: &rusqlite::Row<'_>) -> Result<(RowKey, Row), Cause> {
    let spec = TargetSpec {
        paused: row.get(1)?,
        weight: row.get(2)?,
    };
    Ok((RowKey::Target(read_name(row, 0)?), Row::Target(spec)))
}

fn put(put: &mut Statement<'_>, id: i64, key: &RowKey, row: &Row) -> Result<(), Cause> {
    let (RowKey::Target(target), Row::Target(spec)) = (key, row) else {
        return Err(mixed_up(key));
    };
    put.execute(params![id, target.as_str(), spec.paused, spec.weight])?;
    Ok(())
}
