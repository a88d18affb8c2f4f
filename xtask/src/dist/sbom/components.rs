//! The entries of a bill of materials: what `cargo metadata` and the lock file know about a crate.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::tree::Package;
use crate::run::{FEATURES, cargo, root};

/// The crate that carries the C source of SQLite.
const SQLITE: &str = "libsqlite3-sys";

/// All crates of the lock file.
#[derive(Debug)]
pub(super) struct Crates {
    known: BTreeMap<Package, Crate>,
}

#[derive(Debug, Default)]
struct Crate {
    licence: Option<String>,
    description: Option<String>,
    folder: PathBuf,
    /// Of the crate as its registry publishes it. Crates of the workspace have none.
    sha256: Option<String>,
}

/// A library in C that a crate carries.
#[derive(Debug)]
pub(super) struct Bundled {
    version: String,
}

/// The name by which a bill refers to a crate.
pub(super) fn reference(package: &Package) -> String {
    // A `+` has a meaning of its own in a package URL.
    format!("pkg:cargo/{}@{}", package.name, package.version.replace('+', "%2B"))
}

impl Crates {
    pub(super) fn read(target: &str) -> Result<Crates> {
        let args = ["metadata", "--locked", "--format-version", "1", "--filter-platform"];
        let mut metadata = cargo(&args);
        let output = metadata.arg(target).args(FEATURES).output();
        let output = output.context("run cargo metadata")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo metadata failed: {error}");
        let metadata: Value = serde_json::from_slice(&output.stdout).context("parse cargo metadata")?;
        let lock = fs::read_to_string(root().join("Cargo.lock")).context("read Cargo.lock")?;
        let checksums = checksums(&lock);
        let mut known = BTreeMap::new();
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let text = |field: &str| package[field].as_str().map(str::to_owned);
            let key = Package {
                name: text("name").unwrap_or_default(),
                version: text("version").unwrap_or_default(),
            };
            let manifest = PathBuf::from(text("manifest_path").unwrap_or_default());
            let found = Crate {
                // `/` is how older crates write OR.
                licence: text("license").map(|licence| licence.replace('/', " OR ").replace("  ", " ")),
                description: text("description").map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")),
                folder: manifest.parent().unwrap_or(Path::new("")).to_owned(),
                sha256: checksums.get(&key).cloned(),
            };
            known.insert(key, found);
        }
        Ok(Crates { known })
    }

    /// The entry of a crate. One that only builds the program is not part of it: its scope is `excluded`.
    pub(super) fn component(&self, package: &Package, is_linked: bool) -> Result<Value> {
        let Package { name, version } = package;
        let known = self.get(package)?;
        let licence = known
            .licence
            .as_ref()
            .with_context(|| format!("{name} {version} names no licence"))?;
        let mut component = json!({
            "type": "library",
            "bom-ref": reference(package),
            "name": name,
            "version": version,
            "scope": if is_linked { "required" } else { "excluded" },
            "licenses": [{ "expression": licence }],
            "purl": reference(package),
        });
        if let Some(description) = &known.description {
            component["description"] = json!(description);
        }
        if let Some(sha256) = &known.sha256 {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sha256 }]);
        }
        Ok(component)
    }

    /// The C library that this crate carries.
    pub(super) fn bundled(&self, package: &Package) -> Option<Bundled> {
        if package.name != SQLITE {
            return None;
        }
        let header = self.get(package).ok()?.folder.join("sqlite3/sqlite3.h");
        let header = fs::read_to_string(header).ok()?;
        let line = header
            .lines()
            .find_map(|line| line.strip_prefix("#define SQLITE_VERSION "))?;
        let version = line.trim().trim_matches('"').to_owned();
        Some(Bundled { version })
    }

    fn get(&self, package: &Package) -> Result<&Crate> {
        let Package { name, version } = package;
        let known = self.known.get(package);
        known.with_context(|| format!("cargo metadata does not list {name} {version}"))
    }
}

impl Bundled {
    pub(super) fn reference(&self) -> String {
        format!("pkg:generic/sqlite@{}", self.version)
    }

    pub(super) fn component(&self) -> Value {
        json!({
            "type": "library",
            "bom-ref": self.reference(),
            "name": "sqlite",
            "version": self.version,
            "scope": "required",
            "licenses": [{ "license": { "id": "blessing" } }],
            "purl": self.reference(),
            "description": "SQLite, compiled into the program",
        })
    }
}

/// The checksums in a lock file.
fn checksums(lock: &str) -> BTreeMap<Package, String> {
    let mut found = BTreeMap::new();
    for stanza in lock.split("[[package]]").skip(1) {
        let value = |name: &str| {
            let mut lines = stanza.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))?;
            Some(value.trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(checksum)) = (value("name"), value("version"), value("checksum")) {
            found.insert(Package { name, version }, checksum);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_crates_from_a_registry() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"registry\"\nchecksum = \
                    \"0f\"\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\ndependencies = [\n \"a\",\n]\n";
        let found = checksums(lock);
        let keys: Vec<_> = found
            .iter()
            .map(|(package, sum)| (package.name.as_str(), sum.as_str()))
            .collect();
        assert_eq!(keys, [("a", "0f")]);
    }

    #[test]
    fn references_escape_build_metadata() {
        let package = Package {
            name: "toml".to_owned(),
            version: "0.9.1+spec-1.1.0".to_owned(),
        };
        assert_eq!(reference(&package), "pkg:cargo/toml@0.9.1%2Bspec-1.1.0");
    }
}
