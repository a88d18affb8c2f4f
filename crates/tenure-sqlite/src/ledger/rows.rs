//! How many rows are read, and pages of them cut.

use rusqlite::{Connection, OptionalExtension, Params, Row};
use tenure_core::store::Page;

use crate::error::Cause;

/// The one row that a statement answers, if any.
pub(super) fn one<T>(
    sql: &Connection,
    statement: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> Result<T, Cause>,
) -> Result<Option<T>, Cause> {
    let mut select = sql.prepare_cached(statement)?;
    let mut rows = select.query(params)?;
    rows.next()?.map(read).transpose()
}

/// All rows that a statement answers.
pub(super) fn many<T>(
    sql: &Connection,
    statement: &str,
    params: impl Params,
    read: impl Fn(&Row<'_>) -> Result<T, Cause>,
) -> Result<Vec<T>, Cause> {
    let mut select = sql.prepare_cached(statement)?;
    let mut rows = select.query(params)?;
    let mut items = Vec::new();
    while let Some(row) = rows.next()? {
        items.push(read(row)?);
    }
    Ok(items)
}

/// The answer of a statement that asks yes or no; no, when it answers nothing.
pub(super) fn is(sql: &Connection, statement: &str, params: impl Params) -> Result<bool, Cause> {
    let answer = sql.prepare_cached(statement)?.query_row(params, |row| row.get(0));
    Ok(answer.optional()?.unwrap_or(false))
}

/// A page of what was read with one item more than asked for.
pub(super) fn page<T>(mut items: Vec<T>, limit: u32, cursor: impl Fn(&T) -> String) -> Page<T> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(cursor);
    Page { items, next }
}
