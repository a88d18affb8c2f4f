//! Leases and reservations.

use rusqlite::{Statement, params};
use tenure_core::memory::rows::{LeaseRow, ReservedRow, Row, RowKey};

use super::{Table, mixed_up};
use crate::error::Cause;
use crate::sql::{instant, number, read_instant, read_name, read_token, table};

pub(super) static LEASES: Table = Table::new(1, table!("lease.sql", "leases"), read, put);

pub(super) static RESERVED: Table = Table::new(1, table!("lease.sql", "reserved"), read_reserved, put_reserved);

fn read(row: &rusqlite::Row<'_>) -> Result<(RowKey, Row), Cause> {
    let lease = LeaseRow {
        tenure: read_name(row, 1)?,
        token: read_token(row, 2)?,
    };
    Ok((RowKey::Lease(read_name(row, 0)?), Row::Lease(lease)))
}

fn put(put: &mut Statement<'_>, id: i64, key: &RowKey, row: &Row) -> Result<(), Cause> {
    let (RowKey::Lease(lease), Row::Lease(row)) = (key, row) else {
        return Err(mixed_up(key));
    };
    put.execute(params![
        id,
        lease.as_str(),
        row.tenure.to_string(),
        number(row.token.get())
    ])?;
    Ok(())
}

fn read_reserved(row: &rusqlite::Row<'_>) -> Result<(RowKey, Row), Cause> {
    let reserved = ReservedRow {
        member: read_name(row, 1)?,
        until: read_instant(row, 2)?,
    };
    Ok((RowKey::Reserved(read_name(row, 0)?), Row::Reserved(reserved)))
}

fn put_reserved(put: &mut Statement<'_>, id: i64, key: &RowKey, row: &Row) -> Result<(), Cause> {
    let (RowKey::Reserved(lease), Row::Reserved(row)) = (key, row) else {
        return Err(mixed_up(key));
    };
    put.execute(params![id, lease.as_str(), row.member.as_str(), instant(row.until)])?;
    Ok(())
}
