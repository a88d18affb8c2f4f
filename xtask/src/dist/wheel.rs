//! The Python wheel: the program as a script of the environment it is installed into. It contains no Python.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::binary;
use super::contents::{Contents, text};
use super::release::{Arch, Release};
use super::stage::{PLAIN, PROGRAM, Stage};
use crate::run::must;

/// One line about the program, for package managers.
pub(crate) const SUMMARY: &str =
    "Leader election, distributed locks, heartbeats and service registries for a fleet of processes";

/// Writes a folder as a wheel.
const WRITER: &str = include_str!("wheel.py");

pub(crate) fn package(release: &Release, contents: &Contents) -> Result<PathBuf> {
    let version = release.version;
    // The tag of a C library that has every symbol; pip refuses an older one.
    let glibc = binary::glibc(&contents.binary)?;
    let tag = format!("py3-none-manylinux_2_{glibc}_{}", Arch::of_this_machine()?.rust);
    let name = format!("tenure_cli-{version}");
    let stage = Stage::new(release.out.join("stage/wheel"))?;
    stage.copy(&contents.binary, &format!("{name}.data/scripts/tenure"), PROGRAM)?;
    contents.lay_out_manuals(&stage, &format!("{name}.data/data/"))?;
    let info = format!("{name}.dist-info");
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        stage.write(&format!("{info}/licenses/{licence}"), PLAIN, text(licence)?)?;
    }
    stage.write(
        &format!("{info}/METADATA"),
        PLAIN,
        metadata(version, &text("README.md")?),
    )?;
    let wheel = format!("Wheel-Version: 1.0\nGenerator: xtask {version}\nRoot-Is-Purelib: false\nTag: {tag}\n");
    stage.write(&format!("{info}/WHEEL"), PLAIN, wheel)?;

    let file = release.out.join(format!("{name}-{tag}.whl"));
    write(release, &stage, &file)?;
    Ok(file)
}

/// Writes a stage as a wheel.
pub(crate) fn write(release: &Release, stage: &Stage, file: &Path) -> Result<()> {
    must(
        Command::new("python3")
            .args(["-I", "-c", WRITER])
            .arg(stage.root())
            .arg(file)
            .arg(release.epoch.to_string()),
    )
}

fn metadata(version: &str, readme: &str) -> String {
    format!(
        "Metadata-Version: 2.1\nName: tenure-cli\nVersion: {version}\nSummary: {SUMMARY}\nLicense: MIT OR Apache-2.0\n\
         License-File: LICENSE-MIT\nLicense-File: LICENSE-APACHE\nRequires-Python: >=3.7\n\
         Classifier: Operating System :: POSIX :: Linux\nClassifier: Programming Language :: Rust\n\
         Description-Content-Type: text/markdown\n\n{readme}"
    )
}
