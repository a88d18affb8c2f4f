//! Parses apt's sources in both formats, and writes an entry with another suite's name.

use std::fs;
use std::path::Path;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A stanza of a `.sources` file, field by field (continuation lines included).
    Stanza(Vec<String>),
    /// A line of a `.list` file: the part before the suite, the suite, the part after it.
    Line(String, String, String),
}

/// All entries of an apt directory, in apt's order.
pub(super) fn of_machine(apt: &Path) -> Vec<Source> {
    let mut files = vec![apt.join("sources.list")];
    if let Ok(entries) = fs::read_dir(apt.join("sources.list.d")) {
        let mut more: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        more.sort();
        files.extend(more);
    }
    let parse = |file: std::path::PathBuf| {
        let text = fs::read_to_string(&file).unwrap_or_default();
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("sources") => parse_stanzas(&text),
            Some("list") => parse_list(&text),
            _ => Vec::new(),
        }
    };
    files.into_iter().flat_map(parse).collect()
}

fn parse_stanzas(text: &str) -> Vec<Source> {
    let mut stanzas = Vec::new();
    for paragraph in text.split("\n\n") {
        let mut fields: Vec<String> = Vec::new();
        for line in paragraph
            .lines()
            .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        {
            match fields.last_mut() {
                Some(field) if line.starts_with([' ', '\t']) => {
                    field.push('\n');
                    field.push_str(line);
                }
                _ => fields.push(line.to_owned()),
            }
        }
        if !fields.is_empty() {
            stanzas.push(Source::Stanza(fields));
        }
    }
    stanzas
}

pub(super) fn parse_list(text: &str) -> Vec<Source> {
    text.lines().filter_map(parse_line).collect()
}

/// `deb [options] uri suite components…`.
fn parse_line(line: &str) -> Option<Source> {
    let rest = line.strip_prefix("deb ")?.trim_start();
    let rest = if rest.starts_with('[') {
        rest.split_once(']')?.1.trim_start()
    } else {
        rest
    };
    let (_uri, rest) = rest.split_once(char::is_whitespace)?;
    let (suite, components) = rest.trim_start().split_once(char::is_whitespace)?;
    let before = &line[..line.len() - rest.trim_start().len()];
    Some(Source::Line(
        before.to_owned(),
        suite.to_owned(),
        components.trim().to_owned(),
    ))
}

impl Source {
    /// Whether it is an enabled entry of that release's main archive.
    pub(super) fn is_for(&self, release: &str) -> bool {
        let has = |values: Option<String>, value: &str| {
            values.is_some_and(|values| values.split_whitespace().any(|one| one == value))
        };
        match self {
            Source::Stanza(_) => {
                has(self.field("Types"), "deb")
                    && has(self.field("Suites"), release)
                    && has(self.field("Components"), "main")
                    && self.field("Enabled").is_none_or(|enabled| enabled != "no")
            }
            Source::Line(_, suite, components) => suite == release && has(Some(components.clone()), "main"),
        }
    }

    /// The file extension of its format.
    pub(super) fn extension(&self) -> &'static str {
        match self {
            Source::Stanza(_) => "sources",
            Source::Line(..) => "list",
        }
    }

    /// The same entry, for another suite.
    pub(super) fn with_suite(&self, suite: &str) -> String {
        match self {
            Source::Stanza(fields) => {
                let other = |field: &String| match is_named(field, "Suites") {
                    true => format!("Suites: {suite}\n"),
                    false => format!("{field}\n"),
                };
                fields.iter().map(other).collect()
            }
            Source::Line(before, _, components) => format!("{before}{suite} {components}\n"),
        }
    }

    fn field(&self, name: &str) -> Option<String> {
        let Source::Stanza(fields) = self else {
            return None;
        };
        let field = fields.iter().find(|field| is_named(field, name))?;
        Some(field[name.len() + 1..].trim().to_owned())
    }
}

fn is_named(field: &str, name: &str) -> bool {
    field
        .split_once(':')
        .is_some_and(|(before, _)| before.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANZAS: &str = "\
Types: deb
# a remark
URIs: http://mirror.invalid/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By:
 -----BEGIN-----
 .

Types: deb
URIs: http://mirror.invalid/debian-security
Suites: bookworm-security
Components: main
";

    #[test]
    fn a_stanza_changes_its_suite_and_nothing_else() {
        let stanzas = parse_stanzas(STANZAS);
        let own: Vec<_> = stanzas.iter().filter(|stanza| stanza.is_for("bookworm")).collect();
        assert_eq!((stanzas.len(), own.len()), (2, 1));
        let expected = "Types: deb\nURIs: http://mirror.invalid/debian\nSuites: bullseye\nComponents: main\n\
                        Signed-By:\n -----BEGIN-----\n .\n";
        assert_eq!(own[0].with_suite("bullseye"), expected);
    }

    #[test]
    fn a_disabled_stanza_is_not_in_use() {
        let stanza = parse_stanzas("Types: deb\nURIs: u\nSuites: bookworm\nComponents: main\nEnabled: no\n");
        assert!(!stanza[0].is_for("bookworm"));
    }

    #[test]
    fn a_line_changes_its_suite_and_keeps_its_options() {
        let list =
            "# deb x bookworm main\ndeb [arch=amd64 signed-by=/k] http://mirror.invalid/debian bookworm main contrib\n";
        let lines = parse_list(list);
        assert!(lines.len() == 1 && lines[0].is_for("bookworm") && !lines[0].is_for("bullseye"));
        let expected = "deb [arch=amd64 signed-by=/k] http://mirror.invalid/debian bullseye main contrib\n";
        assert_eq!(lines[0].with_suite("bullseye"), expected);
    }
}
