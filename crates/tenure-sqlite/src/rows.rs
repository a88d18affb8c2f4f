//! Rows of the model as rows of the file: one table for each kind, one file for each noun.
//!
//! A kind of row has the same four statements everywhere, with the group in `?1` and the key behind it: put, delete, one,
//! all. The columns that are read begin with those of the key.

mod group;
mod lease;
mod membership;
mod registry;
mod roster;
mod session;
mod target;

use rusqlite::types::Value;
use rusqlite::{Connection, Statement, params, params_from_iter};
use tenure_core::memory::rows::{Row, RowKey};

pub(crate) use self::group::{all_groups, insert_group, one_group, remove_group, update_group};
pub(crate) use self::session::free_aliases;
use crate::error::Cause;

/// One kind of rows in the file.
struct Table {
    /// How many columns the key has, after the group.
    keys: usize,
    put_text: &'static str,
    delete: &'static str,
    one: &'static str,
    all: &'static str,
    read: Read,
    put: Put,
    /// A row that cannot be read, which only another program can have written, makes the file count as damaged: it says which
    /// tenure may act. Rows of other tables are deleted then, as if they had never arrived.
    is_vital: bool,
}

type Read = fn(&rusqlite::Row<'_>) -> Result<(RowKey, Row), Cause>;
type Put = fn(&mut Statement<'_>, i64, &RowKey, &Row) -> Result<(), Cause>;

impl Table {
    /// A table of vital rows.
    const fn new(keys: usize, [put_text, delete, one, all]: [&'static str; 4], read: Read, put: Put) -> Self {
        Self {
            keys,
            put_text,
            delete,
            one,
            all,
            read,
            put,
            is_vital: true,
        }
    }

    /// The same for rows that may be missed.
    const fn expendable(self) -> Self {
        Self {
            is_vital: false,
            ..self
        }
    }
}

/// All tables, in the order in which they are read.
static TABLES: [&Table; 15] = [
    &membership::MEMBERS,
    &membership::ENDED,
    &membership::LAPSES,
    &registry::CLAIMS,
    &lease::LEASES,
    &lease::RESERVED,
    &target::TARGETS,
    &session::SESSIONS,
    &session::CONNECTIONS,
    &roster::MARKS,
    &roster::RETIMING,
    &roster::PROVIDERS,
    &roster::REMOVED,
    &roster::OFFLINED,
    &roster::TURNS,
];

fn table_of(key: &RowKey) -> &'static Table {
    match key {
        RowKey::Member(_) => &membership::MEMBERS,
        RowKey::Ended(_) => &membership::ENDED,
        RowKey::Lapse(_) => &membership::LAPSES,
        RowKey::Claim(..) => &registry::CLAIMS,
        RowKey::Lease(..) => &lease::LEASES,
        RowKey::Reserved(..) => &lease::RESERVED,
        RowKey::Target(_) => &target::TARGETS,
        RowKey::Session(_) => &session::SESSIONS,
        RowKey::Connection(..) => &session::CONNECTIONS,
        RowKey::Roster => &roster::MARKS,
        RowKey::Retiming => &roster::RETIMING,
        RowKey::Provider(_) => &roster::PROVIDERS,
        RowKey::Removed(_) => &roster::REMOVED,
        RowKey::Offlined(_) => &roster::OFFLINED,
        RowKey::Turn(_) => &roster::TURNS,
    }
}

/// The columns of a key, after the group.
fn columns(id: i64, key: &RowKey) -> Vec<Value> {
    let text = |text: &dyn ToString| Value::Text(text.to_string());
    let mut columns = vec![Value::Integer(id)];
    match key {
        RowKey::Member(member) | RowKey::Lapse(member) => columns.push(text(member)),
        RowKey::Ended(tenure) | RowKey::Offlined(tenure) => columns.push(text(tenure)),
        RowKey::Claim(registry, key) => columns.extend([Value::Text(registry::column(registry)), text(key)]),
        RowKey::Lease(lease, place) | RowKey::Reserved(lease, place) => {
            columns.extend([text(lease), Value::Integer(place.get().into())]);
        }
        RowKey::Target(target) => columns.push(text(target)),
        RowKey::Session(session) => columns.push(text(session)),
        RowKey::Connection(session, connection) => columns.extend([text(session), text(connection)]),
        RowKey::Roster | RowKey::Retiming => {}
        RowKey::Provider(provider) | RowKey::Removed(provider) => columns.push(text(provider)),
        RowKey::Turn(task) => columns.push(text(&task.as_str())),
    }
    columns
}

/// Writes rows over whatever is there, or deletes them. Rows of one kind come together, so each statement is looked up once.
pub(crate) fn write(sql: &Connection, id: i64, rows: &[(RowKey, Option<Row>)]) -> Result<(), Cause> {
    for rows in rows.chunk_by(|(one, _), (two, _)| std::ptr::eq(table_of(one), table_of(two))) {
        let table = table_of(&rows[0].0);
        let mut put = sql.prepare_cached(table.put_text)?;
        let mut delete = sql.prepare_cached(table.delete)?;
        for (key, row) in rows {
            match row {
                Some(row) => (table.put)(&mut put, id, key, row)?,
                None => drop(delete.execute(params_from_iter(columns(id, key)))?),
            }
        }
    }
    Ok(())
}

/// Reads a row.
pub(crate) fn read(sql: &Connection, id: i64, key: &RowKey) -> Result<Option<Row>, Cause> {
    let table = table_of(key);
    let mut one = sql.prepare_cached(table.one)?;
    let mut rows = one.query(params_from_iter(columns(id, key)))?;
    let row = rows.next()?.map(table.read).transpose()?;
    Ok(row.map(|(_, row)| row))
}

/// Deletes the rows of a group that cannot be read, where they may be missed.
pub(crate) fn delete_unreadable(sql: &Connection, id: i64) -> Result<(), Cause> {
    for table in TABLES.into_iter().filter(|table| !table.is_vital) {
        let mut unreadable = Vec::new();
        let mut all = sql.prepare_cached(table.all)?;
        let mut rows = all.query(params![id])?;
        while let Some(row) = rows.next()? {
            if let Err(cause) = (table.read)(row) {
                tracing::warn!(group = id, %cause, "a row of the SQLite file cannot be read and is deleted");
                let key = (0..table.keys).map(|column| row.get(column));
                unreadable.push(key.collect::<rusqlite::Result<Vec<Value>>>()?);
            }
        }
        drop(rows);
        for key in unreadable {
            let key = std::iter::once(Value::Integer(id)).chain(key);
            sql.prepare_cached(table.delete)?.execute(params_from_iter(key))?;
        }
    }
    Ok(())
}

/// Reads all rows of a group.
pub(crate) fn read_all(sql: &Connection, id: i64, mut take: impl FnMut(RowKey, Row)) -> Result<(), Cause> {
    for table in TABLES {
        let mut all = sql.prepare_cached(table.all)?;
        let mut rows = all.query(params![id])?;
        while let Some(row) = rows.next()? {
            let (key, row) = (table.read)(row)?;
            take(key, row);
        }
    }
    Ok(())
}

/// The error for a row whose kind is not that of its key.
fn mixed_up(key: &RowKey) -> Cause {
    Cause::Strange(format!("a row of another kind than its key {key:?}"))
}

/// The error for an invalid text.
fn strange(what: impl std::fmt::Display) -> Cause {
    Cause::Strange(what.to_string())
}
