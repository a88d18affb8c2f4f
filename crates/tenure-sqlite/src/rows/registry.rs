//! Claims.

use rusqlite::{Statement, params};
use tenure_core::memory::rows::{Row, RowKey};
use tenure_core::{Key, RegistryName};

use super::{Table, mixed_up, strange};
use crate::error::Cause;
use crate::sql::{read_name, table};

pub(super) static CLAIMS: Table = Table::new(2, table!("registry.sql", "claims"), read, put);

/// A registry as its column has it: with the slash that ends it in the text of a holding.
pub(super) fn column(registry: &RegistryName) -> String {
    format!("{registry}/")
}

fn read(row: &rusqlite::Row<'_>) -> Result<(RowKey, Row), Cause> {
    let registry = row.get_ref(0)?.as_str().map_err(strange)?;
    let registry = registry.strip_suffix('/').unwrap_or(registry);
    let registry = RegistryName::new(registry).map_err(strange)?;
    let key: Key = read_name(row, 1)?;
    Ok((RowKey::Claim(registry, key), Row::Claim(read_name(row, 2)?)))
}

fn put(put: &mut Statement<'_>, id: i64, key: &RowKey, row: &Row) -> Result<(), Cause> {
    let (RowKey::Claim(registry, name), Row::Claim(tenure)) = (key, row) else {
        return Err(mixed_up(key));
    };
    put.execute(params![id, column(registry), name.as_str(), tenure.to_string()])?;
    Ok(())
}
