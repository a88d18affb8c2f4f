//! Borders: a dependency belongs to few folders, a statement to a file of its own language.

use super::code::{has_word, without_comments, without_prose};
use super::{File, Finding, Tree};

/// A dependency by its name in Rust and in manifests, and the folders that may use it.
struct Border {
    name: &'static str,
    package: &'static str,
    folders: &'static [&'static str],
}

#[rustfmt::skip]
const BORDERS: &[Border] = &[
    Border { name: "redis::",   package: "redis",    folders: &["crates/tenure-valkey/", "crates/tenure-bench/"] },
    Border { name: "rusqlite",  package: "rusqlite", folders: &["crates/tenure-sqlite/"] },
    Border { name: "tokio_postgres", package: "tokio-postgres", folders: &["crates/tenure-postgres/", "crates/tenure-bench/"] },
    Border { name: "deadpool",  package: "deadpool", folders: &["crates/tenure-postgres/"] },
    Border { name: "axum",      package: "axum",     folders: &["crates/tenure-server/", "crates/tenure-bench/"] },
    Border { name: "reqwest",   package: "reqwest",  folders: &["crates/tenure/", "crates/tenure-bench/", "crates/tenure-supervise/", "crates/tenure-server/Cargo.toml", "crates/tenure-server/src/daemon/traces/"] },
    Border { name: "opentelemetry", package: "opentelemetry", folders: &["crates/tenure/", "crates/tenure-server/"] },
];

/// Only these folders may use a dependency in production code. Tests may bypass an interface.
pub(super) fn dependencies(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.starts_with("crates/")) {
        let strangers = BORDERS
            .iter()
            .filter(|border| !border.folders.iter().any(|own| file.path.starts_with(own)));
        for border in strangers {
            let Border { package, folders, .. } = border;
            for line in lines_that_name(border, file) {
                let owners = folders.join(" and ");
                let advice = format!("only {owners} may use `{package}`; use its interface");
                findings.push(Finding::new(file, line, "foreign dependency", advice));
            }
        }
    }
    findings
}

fn lines_that_name(border: &Border, file: &File) -> Vec<usize> {
    let mut found = Vec::new();
    if file.path.ends_with("/Cargo.toml") {
        let mut is_shipped = true;
        for (index, line) in file.text.lines().enumerate() {
            if line.starts_with('[') {
                is_shipped = !line.contains("dev-dependencies");
            }
            if is_shipped && line.split(['.', '=', ' ']).next() == Some(border.package) {
                found.push(index + 1);
            }
        }
    } else if file.path.ends_with(".rs") {
        let text = without_prose(&file.text);
        let lines = text.lines().take(file.production_lines()).enumerate();
        found.extend(
            lines
                .filter(|(_, line)| has_word(line, border.name))
                .map(|(index, _)| index + 1),
        );
    }
    found
}

/// SQL and Lua belong in `.sql` and `.lua` files, where dialects can be compared side by side.
pub(super) fn statements(tree: &Tree) -> Vec<Finding> {
    let signs = [
        "\"local function",
        "\"local ",
        "redis.call(",
        "CREATE TABLE",
        "CREATE INDEX",
    ];
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| file.path.starts_with("crates/")) {
        let text = without_comments(&file.text);
        for (index, line) in text.lines().take(file.production_lines()).enumerate() {
            if let Some(sign) = signs.into_iter().find(|sign| line.contains(sign)) {
                let advice = format!("`{sign}`: move the statement to a `.sql` or `.lua` file and `include_str!` it");
                findings.push(Finding::new(file, index + 1, "statement in Rust", advice));
            }
        }
    }
    findings
}

/// Examples and documents name the crate `tenure` alone: it re-exports what its users need.
pub(super) fn facade(tree: &Tree) -> Vec<Finding> {
    let is_for_users = |path: &str| {
        path.starts_with("crates/tenure/examples/")
            || path == "README.md"
            || path.starts_with("docs/guides/")
            || path == "docs/cookbook.md"
    };
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| is_for_users(&file.path)) {
        for (index, line) in file.text.lines().enumerate() {
            if has_word(line, "tenure_core") {
                let advice = "`tenure_core`: users depend on `tenure`; re-export it there and name that";
                findings.push(Finding::new(file, index + 1, "facade", advice));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{places, tree};

    #[test]
    fn inner_crates_are_found_in_what_users_read() {
        let found = facade(&tree(&[
            (
                "crates/tenure/examples/a.rs",
                "use tenure::Group;\nuse tenure_core::id::Key;\n",
            ),
            ("docs/cookbook.md", "use tenure_core::time;\n"),
            ("crates/tenure/src/lib.rs", "use tenure_core::time;\n"),
        ]));
        assert_eq!(places(&found), ["crates/tenure/examples/a.rs:2", "docs/cookbook.md:1"]);
    }

    #[test]
    fn a_dependency_is_found_outside_its_folder() {
        let found = dependencies(&tree(&[
            ("crates/tenure-valkey/src/lib.rs", "use redis::Client;\n"),
            (
                "crates/tenure/src/lib.rs",
                "// redis::Client\nlet url = \"redis://\";\nuse redis::Client;\n",
            ),
            (
                "crates/tenure-server/src/lib.rs",
                "use utoipa_axum::x;\nuse reqwest::get;\n#[cfg(test)]\nmod tests {\nuse redis::x;\n",
            ),
            (
                "crates/tenure-cli/Cargo.toml",
                "[dependencies]\nrusqlite.workspace = true\nredis-tools = \"1\"\n[dev-dependencies]\nredis = \"1\"\n",
            ),
        ]));
        let expected = [
            "crates/tenure/src/lib.rs:3",
            "crates/tenure-server/src/lib.rs:2",
            "crates/tenure-cli/Cargo.toml:2",
        ];
        assert_eq!(places(&found), expected);
        assert!(found[0].advice.contains("crates/tenure-valkey/"), "{}", found[0]);
    }

    #[test]
    fn statements_are_found_in_production_code() {
        let found = statements(&tree(&[
            (
                "crates/a/src/a.rs",
                "const A: &str = \"local function f()\";\n// CREATE TABLE\nlet b = \"CREATE TABLE b\";\n",
            ),
            ("crates/a/tests/a.rs", "let b = \"CREATE TABLE b\";\n"),
        ]));
        assert_eq!(places(&found), ["crates/a/src/a.rs:1", "crates/a/src/a.rs:3"]);
    }
}
