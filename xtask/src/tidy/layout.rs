//! Required parts of crates, files and the project.

use super::{Finding, Tree};

/// Every crate has a description.
pub(super) fn descriptions(tree: &Tree) -> Vec<Finding> {
    let lacks = |manifest: &&super::File| {
        let lines = manifest
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("description"));
        !lines
            .into_iter()
            .any(|value| value.trim_start_matches([' ', '=', '"']).len() > 1)
    };
    let finding = |manifest| {
        Finding::new(
            manifest,
            1,
            "crate description",
            "say in `description` what the crate is",
        )
    };
    tree.crates().filter(lacks).map(finding).collect()
}

/// Every source file begins with a module comment.
pub(super) fn module_docs(tree: &Tree) -> Vec<Finding> {
    let is_source =
        |path: &str| path.starts_with("xtask/src/") || (path.starts_with("crates/") && path.contains("/src/"));
    let lacks = |file: &&super::File| {
        let first = file.text.lines().find(|line| !line.trim().is_empty());
        is_source(&file.path) && !first.is_some_and(|line| line.len() > 4 && line.starts_with("//! "))
    };
    let finding = |file| Finding::new(file, 1, "module doc", "begin with `//!`: what the module is for");
    tree.rust().filter(lacks).map(finding).collect()
}

/// Both licences of the manifests exist.
pub(super) fn licences(tree: &Tree) -> Vec<Finding> {
    let lacks = |path: &&str| tree.file(path).is_none_or(|file| file.text.trim().is_empty());
    let finding = |path| Finding::at(path, 1, "licence", "the manifests name it: add its text");
    ["LICENSE-MIT", "LICENSE-APACHE"]
        .into_iter()
        .filter(lacks)
        .map(finding)
        .collect()
}

/// The changelog has a section for unreleased changes.
pub(super) fn changelog(tree: &Tree) -> Vec<Finding> {
    let path = "CHANGELOG.md";
    let is_open = |line: &str| line.starts_with("## ") && line.to_lowercase().contains("unreleased");
    if tree.file(path).is_some_and(|file| file.text.lines().any(is_open)) {
        return Vec::new();
    }
    vec![Finding::at(
        path,
        1,
        "changelog",
        "add a section `## Unreleased` with what changes for users",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{places, tree};

    #[test]
    fn a_crate_without_a_description_is_found() {
        let found = descriptions(&tree(&[
            ("crates/a/Cargo.toml", "description = \"A\"\n"),
            ("crates/b/Cargo.toml", "description = \"\"\n"),
            ("xtask/Cargo.toml", "name = \"xtask\"\n"),
        ]));
        assert_eq!(places(&found), ["crates/b/Cargo.toml:1", "xtask/Cargo.toml:1"]);
    }

    #[test]
    fn a_file_without_a_module_doc_is_found() {
        let found = module_docs(&tree(&[
            ("crates/a/src/lib.rs", "//! What it is.\n"),
            ("crates/a/src/b.rs", "use std::fmt;\n//! Too late.\n"),
            ("crates/a/src/c.rs", "//!\n"),
            ("crates/a/tests/d.rs", "use std::fmt;\n"),
        ]));
        assert_eq!(places(&found), ["crates/a/src/b.rs:1", "crates/a/src/c.rs:1"]);
    }

    #[test]
    fn missing_and_empty_licences_are_found() {
        let found = licences(&tree(&[("LICENSE-MIT", "\n")]));
        assert_eq!(places(&found), ["LICENSE-MIT:1", "LICENSE-APACHE:1"]);
        assert!(licences(&tree(&[("LICENSE-MIT", "x"), ("LICENSE-APACHE", "x")])).is_empty());
    }

    #[test]
    fn a_changelog_without_an_open_section_is_found() {
        assert_eq!(
            places(&changelog(&tree(&[("CHANGELOG.md", "## 0.1.0\n")]))),
            ["CHANGELOG.md:1"]
        );
        assert_eq!(places(&changelog(&tree(&[]))), ["CHANGELOG.md:1"]);
        assert!(changelog(&tree(&[("CHANGELOG.md", "# Changes\n## [Unreleased]\n")])).is_empty());
    }
}
