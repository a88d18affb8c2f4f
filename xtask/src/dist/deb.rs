//! The Debian package: the program, its unit, its user and its configuration.
//!
//! `dpkg-deb` writes it, which every Debian has; it sorts names and takes times from `SOURCE_DATE_EPOCH`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::binary;
use super::contents::{Contents, Prefix, documents, text};
use super::release::{Arch, Effort, Release};
use super::stage::{PLAIN, PROGRAM, Stage};
use crate::run::must;

/// The scripts that dpkg runs, in `deploy/debian`.
const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];

pub(crate) fn package(release: &Release, contents: &Contents) -> Result<PathBuf> {
    let arch = Arch::of_this_machine()?;
    let stage = Stage::new(release.out.join("stage/deb"))?;
    contents.lay_out(&stage, "usr/", Prefix::Usr)?;
    compress_manuals(stage.root(), contents)?;
    stage.write("etc/tenure/tenure.toml", PLAIN, &contents.settings)?;
    for (name, text) in [
        ("tenure.service", daemon_unit(&text("deploy/systemd/tenure.service")?)?),
        (
            "tenure-run@.service",
            run_unit(&text("deploy/systemd/tenure-run@.service")?)?,
        ),
    ] {
        stage.write(&format!("usr/lib/systemd/system/{name}"), PLAIN, text)?;
    }
    documents(&stage, "usr/share/doc/tenure/")?;
    stage.write(
        "usr/share/doc/tenure/copyright",
        PLAIN,
        text("deploy/debian/copyright")?,
    )?;

    let kilobytes = stage.size()?.div_ceil(1024);
    let control = text("deploy/debian/control")?
        .replace("@VERSION@", release.version)
        .replace("@ARCHITECTURE@", arch.debian)
        .replace("@GLIBC@", &binary::glibc(&contents.binary)?.to_string())
        .replace("@SIZE@", &kilobytes.to_string());
    stage.write("DEBIAN/control", PLAIN, control)?;
    stage.write("DEBIAN/conffiles", PLAIN, "/etc/tenure/tenure.toml\n")?;
    for script in SCRIPTS {
        stage.write(
            &format!("DEBIAN/{script}"),
            PROGRAM,
            text(&format!("deploy/debian/{script}"))?,
        )?;
    }
    let file = release
        .out
        .join(format!("tenure_{}_{}.deb", release.version, arch.debian));
    build(release, stage.root(), &file)?;
    Ok(file)
}

fn build(release: &Release, stage: &Path, file: &Path) -> Result<()> {
    let compression = match release.effort {
        Effort::Full => ["-Zxz", "-z9"],
        Effort::Quick => ["-Zgzip", "-z1"],
    };
    let mut command = Command::new("dpkg-deb");
    command
        .args(["--root-owner-group", "--build"])
        .args(compression)
        .args([stage, file])
        .stdout(Stdio::null())
        .env("SOURCE_DATE_EPOCH", release.epoch.to_string())
        // With more threads the compressed bytes depend on the number of cores.
        .env("DPKG_DEB_THREADS_MAX", "1");
    must(&mut command)
}

fn compress_manuals(stage: &Path, contents: &Contents) -> Result<()> {
    let folder = stage.join("usr/share/man/man1");
    let names = contents.manuals.iter().map(|(name, _)| name);
    must(
        Command::new("gzip")
            .args(["--no-name", "-9"])
            .args(names)
            .current_dir(folder),
    )
}

/// The unit of the daemon with the package's program, user and configuration.
fn daemon_unit(text: &str) -> Result<String> {
    let mut unit = without_heading(text)?;
    for (from, to) in [
        ("ExecStart=/usr/local/bin/tenure", "ExecStart=/usr/bin/tenure"),
        ("# Environment=TENURE_CONFIG=", "Environment=TENURE_CONFIG="),
        // A user with a fixed name, so that it can own files with secrets.
        ("DynamicUser=yes", "User=tenure\nGroup=tenure"),
    ] {
        unit = replace_one(&unit, from, to)?;
    }
    Ok(unit)
}

fn run_unit(text: &str) -> Result<String> {
    replace_one(
        &without_heading(text)?,
        "ExecStart=/usr/local/bin/tenure",
        "ExecStart=/usr/bin/tenure",
    )
}

/// A unit without the advice on how to copy it.
fn without_heading(text: &str) -> Result<String> {
    let start = text.find("[Unit]").context("the unit has no [Unit]")?;
    Ok(text[start..].to_owned())
}

fn replace_one(text: &str, from: &str, to: &str) -> Result<String> {
    let found = text.matches(from).count();
    ensure!(
        found == 1,
        "{from:?} is {found} times in the unit; the package replaces one"
    );
    Ok(text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packaged_units_run_the_packaged_program() {
        let unit = daemon_unit(&text("deploy/systemd/tenure.service").unwrap()).unwrap();
        assert!(unit.contains("\nUser=tenure\nGroup=tenure\n") && !unit.contains("DynamicUser"));
        assert!(
            unit.contains("\nEnvironment=TENURE_CONFIG=/etc/tenure/tenure.toml\n"),
            "{unit}"
        );
        let run = run_unit(&text("deploy/systemd/tenure-run@.service").unwrap()).unwrap();
        for unit in [unit, run] {
            assert!(unit.starts_with("[Unit]\n") && unit.contains("\nExecStart=/usr/bin/tenure "));
            assert!(!unit.contains("/usr/local/bin/tenure"), "{unit}");
        }
    }

    #[test]
    fn a_unit_without_the_expected_line_is_refused() {
        let error = daemon_unit("[Unit]\n[Service]\n").unwrap_err();
        assert!(error.to_string().contains("0 times"), "{error}");
    }
}
