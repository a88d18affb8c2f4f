//! The house rules as checks: each rule is a function over the tree, and a finding names the place, the rule and the fix.

mod borders;
mod code;
mod english;
mod layout;
mod links;
mod logs;
mod prints;
mod size;
mod waits;
mod words;

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::run;

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: &[Rule] = &[
    size::files,
    size::functions,
    size::names,
    words::unfinished,
    words::machine_paths,
    english::words,
    layout::descriptions,
    layout::module_docs,
    layout::licences,
    layout::changelog,
    links::relative,
    links::anchors,
    borders::dependencies,
    borders::statements,
    borders::facade,
    prints::unescaped,
    logs::fields,
    waits::sleeps,
];

/// The text files of the project; paths are relative to its root.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: Vec<File>,
    /// All paths, folders included: the possible targets of a link.
    paths: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct File {
    path: String,
    text: String,
}

/// A finding of a rule. A note does not fail the check.
#[derive(Debug)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    advice: String,
    is_note: bool,
}

impl Finding {
    fn new(file: &File, line: usize, rule: &'static str, advice: impl Into<String>) -> Finding {
        Finding::at(&file.path, line, rule, advice)
    }

    fn at(path: &str, line: usize, rule: &'static str, advice: impl Into<String>) -> Finding {
        Finding {
            path: path.to_owned(),
            line,
            rule,
            advice: advice.into(),
            is_note: false,
        }
    }

    fn noted(self) -> Finding {
        Finding { is_note: true, ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding {
            path,
            line,
            rule,
            advice,
            is_note,
        } = self;
        let kind = if *is_note { "note" } else { "error" };
        write!(f, "{path}:{line}: {kind}: {rule}: {advice}")
    }
}

/// Checks all rules. Returns whether there is no error.
pub(crate) fn check() -> Result<bool> {
    let tree = Tree::read(run::root())?;
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    // Errors come last, at the end of the output.
    findings.sort_by(|a, b| (!a.is_note, &a.path, a.line).cmp(&(!b.is_note, &b.path, b.line)));
    for finding in &findings {
        println!("{finding}");
    }
    let errors = findings.iter().filter(|finding| !finding.is_note).count();
    let notes = findings.len() - errors;
    println!(
        "tidy: {} rules, {} files: {errors} errors, {notes} notes",
        RULES.len(),
        tree.files.len()
    );
    Ok(errors == 0)
}

impl Tree {
    fn read(root: &Path) -> Result<Tree> {
        let mut tree = Tree::default();
        tree.walk(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    fn walk(&mut self, root: &Path, folder: &str) -> Result<()> {
        let entries = fs::read_dir(root.join(folder)).with_context(|| format!("read the folder `{folder}`"))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() {
                name.clone()
            } else {
                format!("{folder}/{name}")
            };
            self.paths.push(path.clone());
            let kind = entry.file_type()?;
            // A link inside the project: its file is read under its own name.
            if kind.is_symlink() {
                continue;
            }
            if kind.is_dir() {
                if !matches!(name.as_str(), "target" | ".git" | "bench-results" | "node_modules") {
                    self.walk(root, &path)?;
                }
            } else if let Ok(text) = fs::read_to_string(entry.path()) {
                self.files.push(File { path, text });
            }
        }
        Ok(())
    }

    fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// All Rust files.
    fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// The folders of the crates.
    fn crates(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with("/Cargo.toml"))
    }
}

impl File {
    /// Whether the whole file is test code.
    fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs") || self.path.contains("/benches/")
    }

    /// The number of production lines: 0 for a test file, otherwise the lines before the tests at the end.
    fn production_lines(&self) -> usize {
        if self.is_test() {
            return 0;
        }
        let lines: Vec<&str> = self.text.lines().collect();
        let is_tests = |at: usize| {
            let rest = lines[at + 1..].iter().find(|line| !line.starts_with("#["));
            lines[at] == "#[cfg(test)]" && rest.is_some_and(|line| line.starts_with("mod tests"))
        };
        (0..lines.len()).find(|at| is_tests(*at)).unwrap_or(lines.len())
    }
}

/// A tree of files by path and text, for the tests of the rules.
#[cfg(test)]
fn tree(files: &[(&str, &str)]) -> Tree {
    let file = |(path, text): &(&str, &str)| File {
        path: (*path).to_owned(),
        text: (*text).to_owned(),
    };
    Tree {
        files: files.iter().map(file).collect(),
        paths: files.iter().map(|(path, _)| (*path).to_owned()).collect(),
    }
}

/// Findings as `path:line`, for the tests of the rules.
#[cfg(test)]
fn places(findings: &[Finding]) -> Vec<String> {
    findings
        .iter()
        .map(|finding| format!("{}:{}", finding.path, finding.line))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_the_place_the_rule_and_the_fix() {
        let finding = Finding::at("a/b.rs", 7, "file size", "split it");
        assert_eq!(finding.to_string(), "a/b.rs:7: error: file size: split it");
        assert_eq!(finding.noted().to_string(), "a/b.rs:7: note: file size: split it");
    }

    #[test]
    fn production_ends_where_the_tests_begin() {
        let text = "fn a() {}\n#[cfg(test)]\nfn helper() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n}\n";
        assert_eq!(tree(&[("crates/a/src/a.rs", text)]).files[0].production_lines(), 3);
        assert_eq!(
            tree(&[("crates/a/src/a/tests.rs", text)]).files[0].production_lines(),
            0
        );
        assert_eq!(tree(&[("crates/a/src/a.rs", "x\ny\n")]).files[0].production_lines(), 2);
    }
}
