//! The configuration file: TOML, whose tables are read as dotted keys.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::SETTINGS;
use crate::exit::Usage;

/// Reads the file into texts by dotted key.
///
/// # Errors
/// `Usage` when it cannot be read, is not TOML, or has a key that is no setting.
pub(super) fn read(path: &str) -> Result<BTreeMap<String, String>, Usage> {
    let content = std::fs::read_to_string(path)
        .map_err(|error| Usage::new(format!("the configuration file {path} cannot be read: {error}")))?;
    parse(path, &content)
}

pub(super) fn parse(path: &str, content: &str) -> Result<BTreeMap<String, String>, Usage> {
    let table: Table = content
        .parse()
        .map_err(|error| Usage::new(format!("{path} is not TOML: {}", first_lines(&error))))?;
    let mut found = BTreeMap::new();
    flatten(path, "", table, &mut found)?;
    Ok(found)
}

fn first_lines(error: &toml::de::Error) -> String {
    error.to_string().trim_end().to_owned()
}

fn flatten(path: &str, prefix: &str, table: Table, found: &mut BTreeMap<String, String>) -> Result<(), Usage> {
    for (name, value) in table {
        let key = if prefix.is_empty() {
            name
        } else {
            format!("{prefix}.{name}")
        };
        if let Value::Table(inner) = value {
            let below = format!("{key}.");
            if !SETTINGS.iter().any(|setting| setting.key.starts_with(&below)) {
                return Err(unknown(path, &key));
            }
            flatten(path, &key, inner, found)?;
            continue;
        }
        if !SETTINGS.iter().any(|setting| setting.key == key) {
            return Err(unknown(path, &key));
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
    let known: Vec<_> = SETTINGS.iter().map(|setting| setting.key).collect();
    Usage::new(format!(
        "{path}: there is no setting {key:?}; there are {}",
        known.join(", ")
    ))
}
