//! Words that must not be committed. They are concatenated here, so that the rules do not match this file.

use super::code::{has_word, without_prose};
use super::{Finding, Tree};

/// Reminders of unfinished work, and macros for debugging.
pub(super) fn unfinished(tree: &Tree) -> Vec<Finding> {
    let reminder = concat!("FIX", "ME");
    let mut findings = Vec::new();
    for file in tree.rust() {
        let plain = without_prose(&file.text);
        for (index, (line, code)) in file.text.lines().zip(plain.lines()).enumerate() {
            let macros = ["todo!", "dbg!", "unimplemented!"];
            let found = macros.into_iter().find(|word| has_word(code, word));
            if let Some(word) = found.or(has_word(line, reminder).then_some(reminder)) {
                let advice = format!("`{word}`: finish or remove it");
                findings.push(Finding::new(file, index + 1, "unfinished work", advice));
            }
        }
    }
    findings
}

/// Absolute paths of a developer's machine.
pub(super) fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let folders = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("/Us", "ers/"),
    ];
    let mut findings = Vec::new();
    for file in &tree.files {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(folder) = folders.into_iter().find(|folder| names_folder(line, folder)) {
                let advice = format!("`{folder}…` exists on one machine only; use a path relative to the project");
                findings.push(Finding::new(file, index + 1, "machine path", advice));
            }
        }
    }
    findings
}

/// Whether a path in `line` begins with `folder`.
fn names_folder(line: &str, folder: &str) -> bool {
    let is_path = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '}' | '>' | '~');
    line.match_indices(folder)
        .any(|(at, _)| !line[..at].chars().next_back().is_some_and(is_path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{places, tree};

    #[test]
    fn reminders_are_found_in_code_and_in_comments() {
        let text = format!(
            "let x = todo!();\n// {}: later\n// dbg! is banned\nlet y = \"todo!\";\n",
            concat!("FIX", "ME")
        );
        let found = unfinished(&tree(&[("crates/a/src/a.rs", &text)]));
        assert_eq!(places(&found), ["crates/a/src/a.rs:1", "crates/a/src/a.rs:2"]);
    }

    #[test]
    fn a_machines_folders_are_found_at_the_start_of_a_path() {
        let text = format!(
            "see docs{}x\nsee `{}me/x`\nhttps://x.invalid{}y\n",
            concat!("/wo", "rk/"),
            concat!("/ho", "me/"),
            concat!("/ro", "ot/")
        );
        let found = machine_paths(&tree(&[("README.md", &text)]));
        assert_eq!(places(&found), ["README.md:2"]);
    }
}
