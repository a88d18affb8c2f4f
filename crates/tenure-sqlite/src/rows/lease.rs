//! Places of leases, and reservations.

use rusqlite::{Statement, params};
use tenure_core::lease::Holders;
use tenure_core::membership::Revision;
use tenure_core::memory::rows::{LeaseRow, ReservedRow, Revocation, Row, RowKey};

use super::{Table, mixed_up, strange};
use crate::error::Cause;
use crate::sql::{
    instant, number, read_instant, read_instant_or_none, read_name, read_number_or_none, read_place,
    read_request_or_none, read_small, read_token, table,
};

pub(super) static LEASES: Table = Table::new(2, table!("lease.sql", "leases"), read, put);

pub(super) static RESERVED: Table = Table::new(2, table!("lease.sql", "reserved"), read_reserved, put_reserved);

fn read(row: &rusqlite::Row<'_>) -> Result<(RowKey, Row), Cause> {
    let revoked = read_number_or_none(row, 7)?.map(Revision);
    let limit = read_instant_or_none(row, 8)?;
    let lease = LeaseRow {
        tenure: read_name(row, 2)?,
        token: read_token(row, 3)?,
        holders: read_holders(row, 4)?,
        generation: read_token(row, 5)?,
        request: read_request_or_none(row, 6)?,
        revoked: revoked.map(|revision| Revocation { revision, limit }),
    };
    Ok((
        RowKey::Lease(read_name(row, 0)?, read_place(row, 1)?),
        Row::Lease(lease),
    ))
}

fn put(put: &mut Statement<'_>, id: i64, key: &RowKey, row: &Row) -> Result<(), Cause> {
    let (RowKey::Lease(lease, place), Row::Lease(row)) = (key, row) else {
        return Err(mixed_up(key));
    };
    let limit = row.revoked.and_then(|revocation| revocation.limit);
    put.execute(params![
        id,
        lease.as_str(),
        place.get(),
        row.tenure.to_string(),
        number(row.token.get()),
        row.holders.get(),
        number(row.generation.get()),
        row.request.map(|request| number(request.get())),
        row.revoked.map(|revocation| number(revocation.revision.0)),
        limit.map(instant),
    ])?;
    Ok(())
}

fn read_reserved(row: &rusqlite::Row<'_>) -> Result<(RowKey, Row), Cause> {
    let reserved = ReservedRow {
        member: read_name(row, 2)?,
        until: read_instant(row, 3)?,
        holders: read_holders(row, 4)?,
        generation: read_token(row, 5)?,
    };
    let key = RowKey::Reserved(read_name(row, 0)?, read_place(row, 1)?);
    Ok((key, Row::Reserved(reserved)))
}

fn put_reserved(put: &mut Statement<'_>, id: i64, key: &RowKey, row: &Row) -> Result<(), Cause> {
    let (RowKey::Reserved(lease, place), Row::Reserved(row)) = (key, row) else {
        return Err(mixed_up(key));
    };
    put.execute(params![
        id,
        lease.as_str(),
        place.get(),
        row.member.as_str(),
        instant(row.until),
        row.holders.get(),
        number(row.generation.get()),
    ])?;
    Ok(())
}

fn read_holders(row: &rusqlite::Row<'_>, column: usize) -> Result<Holders, Cause> {
    Holders::new(read_small(row, column)?).map_err(strange)
}
