//! Expressions, names and templates of the printed SQL.

use tenure_postgres::{Column, Table};

/// Values for the places of a template.
pub(super) type Places = Vec<(&'static str, String)>;

/// A truth value that is never NULL.
pub(super) fn flag(column: &Column, of: &str, not: &str) -> String {
    match column.required {
        true => format!("{not}{of}.{}", column.quoted),
        false => format!("{not}coalesce({of}.{}, false)", column.quoted),
    }
}

/// A time as Tenure keeps it. What has no time zone counts as UTC.
pub(super) fn instant(column: &Column, of: &str) -> String {
    shown_instant(&format!("{of}.{}", column.quoted), &column.kind)
}

/// The conversion between both kinds of times is the same in each direction.
pub(super) fn shown_instant(value: &str, kind: &str) -> String {
    if kind.ends_with("without time zone") {
        format!("{value} AT TIME ZONE 'UTC'")
    } else {
        value.to_owned()
    }
}

pub(super) fn cast(value: &str, from: &str, to: &str) -> String {
    match (from == to, value.contains(' ')) {
        (true, _) => value.to_owned(),
        (false, true) => format!("({value})::{to}"),
        (false, false) => format!("{value}::{to}"),
    }
}

/// A name made of that of a table, in its schema.
pub(super) fn beside(table: &Table, before: &str, after: &str) -> String {
    format!("{}.{}", table.schema, ident(&format!("{before}{}{after}", table.bare)))
}

/// A name in a statement.
pub(super) fn ident(name: &str) -> String {
    let is_plain = |(at, c): (usize, char)| c.is_ascii_lowercase() || c == '_' || (at > 0 && c.is_ascii_digit());
    match name.chars().enumerate().all(is_plain) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Part of a message of `RAISE`.
pub(super) fn said(text: &str) -> String {
    text.replace('\'', "''").replace('%', "%%")
}

/// Fills the places of a template. A line that begins with `{?PLACE}` is left out if that place is empty.
pub(super) fn fill(template: &str, places: &Places) -> String {
    // The quote around a body must not be in it.
    let mut tag = String::from("$write$");
    while places.iter().any(|(_, value)| value.contains(tag.as_str())) {
        tag.insert(1, 'x');
    }
    let mut text = String::new();
    for line in template.lines() {
        let mut line = line;
        if let Some((place, rest)) = line.strip_prefix("{?").and_then(|rest| rest.split_once('}')) {
            if places.iter().any(|(name, value)| *name == place && value.is_empty()) {
                continue;
            }
            line = rest;
        }
        fill_line(
            &mut text,
            &line.replace("$write$", &tag).replace("$words$", &tag),
            places,
        );
        text.push('\n');
    }
    text
}

/// Values are never looked at for places of their own.
fn fill_line(text: &mut String, line: &str, places: &Places) {
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        let value = places
            .iter()
            .find(|(place, _)| *place == name)
            .map(|(_, value)| value.as_str());
        debug_assert!(value.is_some(), "the template has a place {name:?} without a value");
        text.push_str(before);
        text.push_str(value.unwrap_or_default());
        rest = after;
    }
    text.push_str(rest);
}
