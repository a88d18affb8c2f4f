//! Fields of log lines. In JSON they stand beside the line's own keys, and a key must not be there twice.

use std::collections::BTreeSet;

use super::code::without_prose;
use super::{Finding, Tree};

/// The keys of every line in JSON.
const TAKEN: [&str; 5] = ["timestamp", "level", "message", "span", "spans"];
const LEVELS: [&str; 5] = ["trace", "debug", "info", "warn", "error"];

/// Fields that are named like a key of the line, or twice in a line.
pub(super) fn fields(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree
        .rust()
        .filter(|file| file.path.starts_with("crates/") && !file.is_test())
    {
        let plain = without_prose(&file.text);
        for (at, _) in plain.match_indices("tracing::") {
            let Some(arguments) = arguments(&plain[at..]) else {
                continue;
            };
            let mut seen = BTreeSet::new();
            for name in names(arguments) {
                let advice = if TAKEN.contains(&name) {
                    format!("rename it: {name} is a key of each line in JSON")
                } else if seen.insert(name) {
                    continue;
                } else {
                    format!("name {name} once")
                };
                let line = plain[..at].matches('\n').count() + 1;
                findings.push(Finding::new(file, line, "key of a log line", advice));
            }
        }
    }
    findings
}

/// The arguments of a macro that logs, if one begins here.
fn arguments(code: &str) -> Option<&str> {
    let (name, rest) = code.strip_prefix("tracing::")?.split_once("!(")?;
    LEVELS.contains(&name).then_some(())?;
    let mut depth = 1;
    let end = rest.find(|c| {
        depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
        depth == 0
    })?;
    Some(&rest[..end])
}

/// The names of the fields: `%name`, `?name`, `name`, `name = …`.
fn names(arguments: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let parts = arguments.split(move |c| {
        depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
        depth == 0 && c == ','
    });
    parts.filter_map(|part| {
        let part = part.trim().trim_start_matches(['%', '?']);
        let name = part.split_once('=').map_or(part, |(name, _)| name).trim();
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.".contains(c));
        is_name.then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{places, tree};

    #[test]
    fn fields_with_taken_names_are_found() {
        let code = "tracing::info!(%group, target = %x(a, level), \"level = {level}\");\n\
                    tracing::warn!(level = 1, \"m\");\n\
                    tracing::warn!(\n    a,\n    ?a,\n    \"m\"\n);\n\
                    tracing::debug!(%message, \"m\");\ntracing::field::display(level);\n";
        let found = fields(&tree(&[("crates/a/src/a.rs", code), ("crates/a/tests/a.rs", code)]));
        let lines = [2, 3, 8].map(|line| format!("crates/a/src/a.rs:{line}"));
        assert_eq!(places(&found), lines);
    }
}
