//! The graph of dependencies as `cargo tree` prints it: with the features that the program is built with.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};

use crate::run::{FEATURES, cargo};

/// A crate by name and version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
}

/// Packages and their direct dependencies, sorted.
#[derive(Debug, Default)]
pub(super) struct Tree {
    root: Option<Package>,
    packages: BTreeMap<Package, BTreeSet<Package>>,
}

impl Tree {
    /// The graph of `tenure-cli`, following these kinds of edges.
    pub(super) fn of_program(target: &str, edges: &str) -> Result<Tree> {
        let args = ["tree", "--locked", "--package", "tenure-cli", "--prefix", "depth"];
        let output = cargo(&args)
            .args(FEATURES)
            .args(["--format", "|{p}", "--target", target, "--edges", edges])
            .output()
            .context("run cargo tree")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo tree failed: {error}");
        Tree::parse(&String::from_utf8_lossy(&output.stdout))
    }

    /// Parses lines such as `2|serde v1.0.228 (*)`: the depth, the name, the version.
    fn parse(text: &str) -> Result<Tree> {
        let mut tree = Tree::default();
        let mut path: Vec<Package> = Vec::new();
        for line in text.lines() {
            let (depth, package) =
                parse_line(line).with_context(|| format!("unexpected line of cargo tree: {line:?}"))?;
            path.truncate(depth);
            if let Some(parent) = path.last() {
                let needs = tree.packages.entry(parent.clone()).or_default();
                needs.insert(package.clone());
            }
            tree.root.get_or_insert_with(|| package.clone());
            tree.packages.entry(package.clone()).or_default();
            path.push(package);
        }
        Ok(tree)
    }

    pub(super) fn root(&self) -> Option<&Package> {
        self.root.as_ref()
    }

    pub(super) fn contains(&self, package: &Package) -> bool {
        self.packages.contains_key(package)
    }

    pub(super) fn packages(&self) -> impl Iterator<Item = (&Package, &BTreeSet<Package>)> {
        self.packages.iter()
    }
}

fn parse_line(line: &str) -> Option<(usize, Package)> {
    let (depth, rest) = line.split_once('|')?;
    let mut words = rest.split(' ');
    let name = words.next()?.to_owned();
    let version = words.next()?.strip_prefix('v')?.to_owned();
    Some((depth.parse().ok()?, Package { name, version }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
        }
    }

    #[test]
    fn depths_become_edges() {
        let text = "0|a v1.0.0 (a/path)\n1|b v1.0.0\n2|c v1.0.0 (proc-macro)\n1|c v1.0.0 (*)\n";
        let tree = Tree::parse(text).unwrap();
        let found: Vec<_> = tree
            .packages()
            .map(|(package, needs)| (package.name.as_str(), needs.len()))
            .collect();
        assert_eq!(found, [("a", 2), ("b", 1), ("c", 0)]);
        assert_eq!(tree.root(), Some(&package("a")));
    }

    #[test]
    fn an_unexpected_line_is_an_error() {
        assert!(Tree::parse("0|a\n").unwrap_err().to_string().contains("\"0|a\""));
    }
}
