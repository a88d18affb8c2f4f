//! The statements, one file per noun under `sql/`, and how values travel between rows and types.
//!
//! A file holds several statements, each under a line `-- name: <name>`. They are picked out at compile time, so that a
//! misspelt name does not build.

use std::time::Duration;

use rusqlite::Row;
use tenure_core::lease::{Place, RequestId, Token};
use tenure_core::session::Epoch;
use tenure_core::time::micros;
use tenure_core::{Error, StoreTime};

use crate::error::Cause;

const MARK: &[u8] = b"-- name: ";

/// Picks the statement of this name out of a file.
pub(crate) const fn statement(file: &'static str, name: &str) -> &'static str {
    let (bytes, name) = (file.as_bytes(), name.as_bytes());
    let mut at = 0;
    while at < bytes.len() {
        let start = at + MARK.len() + name.len();
        if start < bytes.len() && bytes[start] == b'\n' && has(bytes, at, MARK) && has(bytes, at + MARK.len(), name) {
            let mut end = start;
            while end < bytes.len() && !has(bytes, end, MARK) {
                end += 1;
            }
            return file.split_at(end).0.split_at(start + 1).1;
        }
        at += 1;
    }
    panic!("the file has no statement of this name")
}

const fn has(bytes: &[u8], at: usize, part: &[u8]) -> bool {
    let mut n = 0;
    while n < part.len() {
        if at + n >= bytes.len() || bytes[at + n] != part[n] {
            return false;
        }
        n += 1;
    }
    true
}

/// Names the statements of one file.
macro_rules! statements {
    ($file:literal: $($const:ident = $name:literal),* $(,)?) => {
        $(const $const: &str = crate::sql::statement(
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/sql/", $file)),
            $name,
        );)*
    };
}
pub(crate) use statements;

/// The statements of a table, named after it: put, delete, one, all.
macro_rules! table {
    ($file:literal, $table:literal) => {{
        const FILE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/sql/", $file));
        [
            crate::sql::statement(FILE, concat!($table, ".put")),
            crate::sql::statement(FILE, concat!($table, ".delete")),
            crate::sql::statement(FILE, concat!($table, ".one")),
            crate::sql::statement(FILE, concat!($table, ".all")),
        ]
    }};
}
pub(crate) use table;

/// A number for a column. SQLite's integers are signed; times and terms stay far below that.
pub(crate) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// An instant for a column.
pub(crate) fn instant(at: StoreTime) -> i64 {
    number(at.micros())
}

/// A span for a column.
pub(crate) fn span(span: Duration) -> i64 {
    number(micros(span))
}

/// A number from a column.
pub(crate) fn read_number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}

/// An instant from a column.
pub(crate) fn read_instant(row: &Row<'_>, column: usize) -> rusqlite::Result<StoreTime> {
    read_number(row, column).map(StoreTime::from_micros)
}

/// An instant from a column that may be empty.
pub(crate) fn read_instant_or_none(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<StoreTime>> {
    match row.get_ref(column)? {
        rusqlite::types::ValueRef::Null => Ok(None),
        _ => read_instant(row, column).map(Some),
    }
}

/// A span from a column.
pub(crate) fn read_span(row: &Row<'_>, column: usize) -> rusqlite::Result<Duration> {
    read_number(row, column).map(Duration::from_micros)
}

/// A name, tenure id or the like from a text column.
pub(crate) fn read_name<T: std::str::FromStr<Err = Error>>(row: &Row<'_>, column: usize) -> Result<T, Cause> {
    let text = row
        .get_ref(column)?
        .as_str()
        .map_err(|error| Cause::Strange(error.to_string()))?;
    text.parse().map_err(|error: Error| Cause::Strange(error.to_string()))
}

/// A name from a text column that may be empty.
pub(crate) fn read_name_or_none<T: std::str::FromStr<Err = Error>>(
    row: &Row<'_>,
    column: usize,
) -> Result<Option<T>, Cause> {
    match row.get_ref(column)? {
        rusqlite::types::ValueRef::Null => Ok(None),
        _ => read_name(row, column).map(Some),
    }
}

/// A token from a column.
pub(crate) fn read_token(row: &Row<'_>, column: usize) -> Result<Token, Cause> {
    Token::new(read_number(row, column)?).map_err(|error| Cause::Strange(error.to_string()))
}

/// A token from a column that may be empty.
pub(crate) fn read_token_or_none(row: &Row<'_>, column: usize) -> Result<Option<Token>, Cause> {
    match row.get_ref(column)? {
        rusqlite::types::ValueRef::Null => Ok(None),
        _ => read_token(row, column).map(Some),
    }
}

/// A small number from a column.
pub(crate) fn read_small(row: &Row<'_>, column: usize) -> Result<u16, Cause> {
    u16::try_from(read_number(row, column)?).map_err(|error| Cause::Strange(error.to_string()))
}

/// The place of a lease from a column.
pub(crate) fn read_place(row: &Row<'_>, column: usize) -> Result<Place, Cause> {
    Place::new(read_small(row, column)?).map_err(|error| Cause::Strange(error.to_string()))
}

/// A number from a column that may be empty.
pub(crate) fn read_number_or_none(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    match row.get_ref(column)? {
        rusqlite::types::ValueRef::Null => Ok(None),
        _ => read_number(row, column).map(Some),
    }
}

/// The number of a request from a column that may be empty.
pub(crate) fn read_request_or_none(row: &Row<'_>, column: usize) -> Result<Option<RequestId>, Cause> {
    let request = read_number_or_none(row, column)?.map(RequestId::new);
    request.transpose().map_err(|error| Cause::Strange(error.to_string()))
}

/// The number of an attach from a column.
pub(crate) fn read_epoch(row: &Row<'_>, column: usize) -> Result<Epoch, Cause> {
    Epoch::new(read_number(row, column)?).map_err(|error| Cause::Strange(error.to_string()))
}

/// A span from a column that may be empty.
pub(crate) fn read_span_or_none(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Duration>> {
    match row.get_ref(column)? {
        rusqlite::types::ValueRef::Null => Ok(None),
        _ => read_span(row, column).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_what_stands_between_its_name_and_the_next() {
        const FILE: &str = "-- about\n\n-- name: ab\nSELECT 1;\n\n-- name: a\nSELECT 2;\n";
        assert_eq!(statement(FILE, "ab"), "SELECT 1;\n\n");
        assert_eq!(statement(FILE, "a"), "SELECT 2;\n");
    }

    /// Every statement of these files with its file and name.
    fn all(files: &[(&str, &'static str)]) -> Vec<(String, &'static str)> {
        let of = |(file, text): &(&str, &'static str)| {
            let parts = text.split("-- name: ").skip(1).map(|part| part.split_once('\n'));
            let named = parts.map(|part| part.expect("a name on a line of its own"));
            let named = named.map(|(name, statement)| (format!("{file}: {name}"), statement));
            named.collect::<Vec<_>>()
        };
        files.iter().flat_map(of).collect()
    }

    /// Looks at how each statement finds its rows: by an index and in order, but for those that read or change all
    /// there is of a group or a roster on purpose.
    fn check(kind: &'static crate::file::Kind, statements: Vec<(String, &'static str)>, whole: &[&str]) {
        let dir = tempfile::tempdir().unwrap();
        let sql = crate::file::open_writer(&dir.path().join("tenure.db"), kind).unwrap();
        for (name, statement) in statements {
            let mut explain = sql.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).expect(&name);
            let mut rows = explain.raw_query();
            let mut plan = Vec::new();
            while let Some(row) = rows.next().unwrap() {
                plan.push(row.get::<_, String>(3).unwrap());
            }
            let scans = |step: &String| match step.strip_prefix("SCAN ") {
                Some(what) => what != "CONSTANT ROW",
                None => step.ends_with("(grp=?)") || step.ends_with("(roster=?)"),
            };
            let is_whole = whole.contains(&name.as_str()) || !plan.iter().any(scans);
            let sorted = !plan.iter().any(|step| step.contains("TEMP B-TREE"));
            assert!(is_whole && sorted, "{name}: {plan:?}");
        }
    }

    #[test]
    fn statements_use_indexes_and_need_no_sort() {
        let statements = all(&[
            ("event", include_str!("sql/event.sql")),
            ("group", include_str!("sql/group.sql")),
            ("lease", include_str!("sql/lease.sql")),
            ("membership", include_str!("sql/membership.sql")),
            ("recall", include_str!("sql/recall.sql")),
            ("registry", include_str!("sql/registry.sql")),
            ("repair", include_str!("sql/repair.sql")),
            ("roster", include_str!("sql/roster.sql")),
            ("session", include_str!("sql/session.sql")),
            ("target", include_str!("sql/target.sql")),
        ]);
        assert!(statements.len() > 50, "{}", statements.len());
        // When the file is opened, all rows are read, and looked through for what only another program can have done. A group
        // is removed with its whole log.
        let is_read_whole = |name: &str| name == "group: all" || name.ends_with(".all") || name.starts_with("repair: ");
        let all = statements
            .iter()
            .map(|(name, _)| name.clone())
            .filter(|name| is_read_whole(name));
        let all: Vec<String> = all.collect();
        let mut whole = vec![
            "group: forget_events",
            "group: forget_lapses",
            "group: high_water",
            "group: raise_high_water",
            "recall: read",
            "recall: identity",
            "recall: base",
            "recall: begin",
            "recall: commit",
        ];
        whole.extend(all.iter().map(String::as_str));
        check(&crate::file::STORE, statements, &whole);
    }

    #[test]
    fn ledger_statements_use_indexes_and_need_no_sort() {
        let statements = all(&[
            ("engagement", include_str!("sql/ledger/engagement.sql")),
            ("liveness", include_str!("sql/ledger/liveness.sql")),
            ("log", include_str!("sql/ledger/log.sql")),
            ("outbox", include_str!("sql/ledger/outbox.sql")),
            ("provider", include_str!("sql/ledger/provider.sql")),
            ("settings", include_str!("sql/ledger/settings.sql")),
            ("step", include_str!("sql/ledger/step.sql")),
        ]);
        assert!(statements.len() > 30, "{}", statements.len());
        // Tables of one row, and of one row for a roster; lists that are in order already and cut; and counts.
        let whole = [
            "step: high_water",
            "step: because",
            "step: over",
            "step: next_version",
            "settings: rosters",
            "settings: overview",
            "settings: get",
            "provider: stats",
            "provider: update",
            "engagement: free",
            "engagement: free_and_fresh",
            "engagement: next_free",
            "engagement: miscounted",
            "outbox: oldest",
            "outbox: counts",
        ];
        check(&crate::file::LEDGER, statements, &whole);
    }
}
