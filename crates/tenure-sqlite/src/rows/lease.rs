//! Leases and reservations.

use rusqlite::{Statement, params};
use tenure_core::memory::rows::{LeaseRow, ReservedRow, Row, RowKey};

use super::{Table, mixed_up};
use crate::error::Cause;
use crate::sql::{instant, number, read_instant, read_name, read_token, statements};

statements! { "lease.sql":
    PUT = "put",
    DELETE = "delete",
    ONE = "one",
    ALL = "all",
    PUT_RESERVED = "put_reserved",
    DELETE_RESERVED = "delete_reserved",
    ONE_RESERVED = "one_reserved",
    ALL_RESERVED = "all_reserved",
}

pub(super) static LEASES: Table = Table {
    keys: 1,
    delete: DELETE,
    one: ONE,
    all: ALL,
    read,
    put,
    put_text: PUT,
    is_vital: true,
};

pub(super) static RESERVED: Table = Table {
    keys: 1,
    delete: DELETE_RESERVED,
    one: ONE_RESERVED,
    all: ALL_RESERVED,
    read: read_reserved,
    put: put_reserved,
    put_text: PUT_RESERVED,
    is_vital: true,
};

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
