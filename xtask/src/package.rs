//! The crates as a registry publishes them: packs each, and compiles a program that depends on the packed `tenure` alone.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::run::{cargo, must, root, target};

/// A program that uses every part of the library.
const USER: &str = include_str!("package/user.rs");

/// Packs the crates and checks the program against the packed copies.
pub(crate) fn package() -> Result<bool> {
    let folder = target().join("package-check");
    let crates = pack(&folder)?;
    let unpacked = unpack(&folder, &crates)?;
    let program = folder.join("user");
    write_program(&program, &unpacked)?;
    let mut check = cargo(&["check", "--offline"]);
    must(
        check
            .current_dir(&program)
            .env("CARGO_TARGET_DIR", folder.join("built")),
    )?;
    println!("{} crates are packed; a program compiles against them", crates.len());
    Ok(true)
}

/// The names and versions of the crates for users: those that may be published.
fn public() -> Result<Vec<(String, String)>> {
    let args = ["metadata", "--locked", "--no-deps", "--format-version", "1"];
    let output = cargo(&args).output().context("run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata failed: {}", output.status);
    let metadata: Value = serde_json::from_slice(&output.stdout).context("parse cargo metadata")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    // A crate that must not be published lists no registry; one that may lists none at all.
    let public = packages.filter(|package| package["publish"].is_null());
    Ok(public
        .map(|package| (text(&package["name"]), text(&package["version"])))
        .collect())
}

/// Packs every public crate into `folder`. The crates need not be published: cargo resolves them to each other.
fn pack(folder: &Path) -> Result<Vec<(String, String)>> {
    let crates = public()?;
    let mut pack = cargo(&[
        "package",
        "--locked",
        "--offline",
        "--allow-dirty",
        "--no-verify",
        "--quiet",
    ]);
    for (name, _) in &crates {
        pack.args(["--package", name]);
    }
    // It advises a homepage for each crate; other advice is checked by the tests.
    let output = pack
        .arg("--target-dir")
        .arg(folder)
        .output()
        .context("run cargo package")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo package failed: {error}");
    Ok(crates)
}

/// Unpacks the packed crates, and returns their names and folders.
fn unpack(folder: &Path, crates: &[(String, String)]) -> Result<Vec<(String, PathBuf)>> {
    let to = folder.join("unpacked");
    fs::remove_dir_all(&to).ok();
    fs::create_dir_all(&to).with_context(|| format!("create {}", to.display()))?;
    let mut folders = Vec::new();
    for (name, version) in crates {
        let packed = folder.join(format!("package/{name}-{version}.crate"));
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--gzip", "--file"])
            .arg(&packed)
            .arg("--directory")
            .arg(&to);
        must(tar.stdout(Stdio::null()))?;
        folders.push((name.clone(), to.join(format!("{name}-{version}"))));
    }
    Ok(folders)
}

/// Writes the program. Its only dependency of the project is `tenure`, in place of the registry's crates are the unpacked
/// ones, and all other versions are those of the project.
fn write_program(folder: &Path, unpacked: &[(String, PathBuf)]) -> Result<()> {
    let mut manifest = String::from(
        "[package]\nname = \"user\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\ntenure = \"0.1\"\n\
         tokio = { version = \"1\", features = [\"macros\", \"rt\"] }\n\n[patch.crates-io]\n",
    );
    for (name, path) in unpacked {
        // Writing to a string cannot fail.
        let _ = writeln!(manifest, "{name} = {{ path = {path:?} }}");
    }
    fs::create_dir_all(folder.join("src")).with_context(|| format!("create {}", folder.display()))?;
    for (name, text) in [("Cargo.toml", manifest.as_str()), ("src/main.rs", USER)] {
        fs::write(folder.join(name), text).with_context(|| format!("write {name}"))?;
    }
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).context("copy Cargo.lock")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_for_users_are_packed_with_all_metadata() {
        let folder = std::env::temp_dir().join(format!("tenure-package-{}", std::process::id()));
        let crates = pack(&folder).unwrap();
        let names: Vec<_> = crates.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.contains(&"tenure") && names.contains(&"tenure-cli"), "{names:?}");
        assert!(
            !names.contains(&"tenure-testkit") && !names.contains(&"xtask"),
            "{names:?}"
        );
        for (name, path) in unpack(&folder, &crates).unwrap() {
            let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap();
            for key in [
                "description",
                "license",
                "readme",
                "keywords",
                "categories",
                "rust-version",
            ] {
                assert!(manifest.contains(&format!("\n{key} = ")), "{name} has no {key}");
            }
            assert!(manifest.contains("[package.metadata.docs.rs]"), "{name}");
            assert!(path.join("README.md").is_file(), "{name}");
            let own = manifest
                .split("\n[")
                .filter(|table| table.starts_with("dependencies.tenure"));
            for table in own {
                assert!(table.contains("version = \"="), "{name}: {table}");
            }
        }
        // The recipes are part of the documentation, also of the packed crate.
        assert!(folder.join("unpacked/tenure-0.1.0/cookbook.md").is_file());
        fs::remove_dir_all(&folder).ok();
    }
}
