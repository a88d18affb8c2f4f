//! The configuration file: TOML, whose tables are read as dotted keys.

use std::collections::BTreeMap;

use strsim::normalized_damerau_levenshtein;
use toml::{Table, Value};

use super::all;
use crate::exit::Usage;

/// Reads the file into texts by dotted key.
///
/// # Errors
/// `Usage` when it cannot be read, is not TOML, or has a key that is in no table of settings.
pub(super) fn read(path: &str) -> Result<BTreeMap<String, String>, Usage> {
    let content = std::fs::read_to_string(path)
        .map_err(|error| Usage::new(format!("the configuration file {path} cannot be read: {error}")))?;
    parse(path, &content)
}

pub(super) fn parse(path: &str, content: &str) -> Result<BTreeMap<String, String>, Usage> {
    let table: Table = content.parse().map_err(|error| not_toml(path, content, &error))?;
    let mut found = BTreeMap::new();
    flatten(path, "", table, &mut found)?;
    Ok(found)
}

/// Names the place and what is wrong there. What stands there may be a password, which the error itself would quote.
fn not_toml(path: &str, content: &str, error: &toml::de::Error) -> Usage {
    let at = error.span().map_or(0, |span| span.start);
    let before = content.get(..at).unwrap_or(content);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or(before).chars().count() + 1;
    let what = error.message();
    Usage::new(format!("{path} is not TOML: line {line}, column {column}: {what}"))
}

fn flatten(path: &str, prefix: &str, table: Table, found: &mut BTreeMap<String, String>) -> Result<(), Usage> {
    for (name, value) in table {
        let key = if prefix.is_empty() {
            name
        } else {
            format!("{prefix}.{name}")
        };
        if !all().any(|setting| setting.key == key) {
            let below = format!("{key}.");
            match value {
                // The keys of a table are checked by their full names; an empty table has none.
                Value::Table(inner) if !inner.is_empty() => flatten(path, &key, inner, found)?,
                Value::Table(_) if all().any(|setting| setting.key.starts_with(&below)) => {}
                _ => return Err(unknown(path, &key)),
            }
            continue;
        }
        let text = match value {
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Boolean(is) => is.to_string(),
            other => {
                let kind = other.type_str();
                return Err(Usage::new(format!(
                    "{path}: {key}: a text, a number or a boolean is expected, and this is of the type {kind}"
                )));
            }
        };
        found.insert(key, text);
    }
    Ok(())
}

fn unknown(path: &str, key: &str) -> Usage {
    let shown: String = key.chars().take(LONGEST_SHOWN).collect();
    let nearest = all().max_by(|a, b| likeness(&shown, a.key).total_cmp(&likeness(&shown, b.key)));
    let nearest = nearest.map_or("", |setting| setting.key);
    Usage::new(format!("{path}: unknown key \"{shown}\"; did you mean \"{nearest}\"?"))
}

/// The length up to which an unknown key is compared and shown.
const LONGEST_SHOWN: usize = 100;

/// From 0 to 1: slips of the finger cost little, and a right last name under a wrong table counts for something.
fn likeness(unknown: &str, known: &str) -> f64 {
    fn last(key: &str) -> &str {
        key.rsplit('.').next().unwrap_or(key)
    }
    let same_name = if last(unknown) == last(known) { 0.2 } else { 0.0 };
    normalized_damerau_levenshtein(unknown, known) + same_name
}
