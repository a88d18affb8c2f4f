//! A configuration file with every setting, made from the tables of settings.

use std::collections::BTreeMap;

use crate::settings::{Setting, all};

/// The longest line of a comment.
const WIDTH: usize = 100;

const HEAD: &str = "\
# Every setting of Tenure with its default. A line without its # counts.
#
# `tenure serve --config FILE` (or TENURE_CONFIG) reads it, and so does `tenure adopt`, which has tables of its own. A flag
# beats the environment, the environment beats this file, this file beats the default; `tenure config explain` tells which
# counts, and what follows. Unknown keys are rejected. Durations are written 500ms, 10s, 5m, 1m30s.
#
# Printed by `tenure config example`.
";

/// The file.
pub(super) fn file() -> String {
    let mut file = HEAD.to_owned();
    for (name, settings) in tables() {
        if !name.is_empty() {
            file.push_str(&format!("\n[{name}]\n"));
        }
        for (nth, setting) in settings.into_iter().enumerate() {
            if name.is_empty() || nth > 0 {
                file.push('\n');
            }
            push(&mut file, setting);
        }
    }
    file
}

/// The settings by the table of the file that they are in: those in none first, then the tables as they first appear.
fn tables() -> Vec<(&'static str, Vec<&'static Setting>)> {
    let mut order = vec![""];
    let mut found: BTreeMap<&str, Vec<&Setting>> = BTreeMap::new();
    for setting in all() {
        let table = setting.key.rsplit_once('.').map_or("", |(table, _)| table);
        if !order.contains(&table) {
            order.push(table);
        }
        found.entry(table).or_default().push(setting);
    }
    let of = |name| (name, found.remove(name).unwrap_or_default());
    order.into_iter().map(of).collect()
}

fn push(file: &mut String, setting: &Setting) {
    for line in wrapped(setting.doc.trim()) {
        file.push_str(&format!("# {line}\n"));
    }
    file.push_str(&format!("# --{}, {}\n", setting.flag(), setting.variable()));
    let name = setting.key.rsplit('.').next().unwrap_or(setting.key);
    let assigned = match setting.default {
        "" => format!("#{name} = \"\" # {}\n", setting.placeholder),
        default if is_bare(default) => format!("#{name} = {default}\n"),
        default => format!("#{name} = \"{default}\"\n"),
    };
    file.push_str(&assigned);
}

/// Numbers and truth values need no quotes.
fn is_bare(default: &str) -> bool {
    matches!(default, "true" | "false") || default.parse::<f64>().is_ok()
}

/// A text in lines of words.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::settings::{Flags, Settings};

    fn of(file: &std::path::Path) -> Flags {
        use clap::{Args, FromArgMatches};
        let command = Flags::augment_args(clap::Command::new("test"));
        let path = file.to_str().unwrap();
        let matches = command.try_get_matches_from(["test", "--config", path]).unwrap();
        Flags::from_arg_matches(&matches).unwrap()
    }

    /// A file that says what the defaults say anyway, and one that says nothing, are as good as none.
    #[test]
    fn the_file_says_what_the_defaults_are() {
        let plain = Settings::load(&Flags::default(), &|_| None).unwrap();
        let said: String = file()
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(setting) if setting.contains(" = ") && !setting.starts_with(' ') => format!("{setting}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        for content in [file(), said] {
            let mut written = tempfile::NamedTempFile::new().unwrap();
            written.write_all(content.as_bytes()).unwrap();
            assert_eq!(Settings::load(&of(written.path()), &|_| None).unwrap(), plain);
        }
    }

    #[test]
    fn every_setting_is_in_it_once() {
        let file = file();
        for setting in all() {
            let way = format!("# --{}, {}\n", setting.flag(), setting.variable());
            assert!(file.contains(&way), "{}", setting.key);
        }
        assert_eq!(
            file.lines().filter(|line| line.starts_with("# --")).count(),
            all().count()
        );
    }

    #[test]
    fn the_committed_file_is_the_one_that_is_printed() {
        let committed = include_str!("../../../../tenure.example.toml");
        assert!(
            committed == file(),
            "tenure.example.toml is old: `tenure config example > tenure.example.toml` at the root"
        );
    }
}
