//! The archive: program, manual pages, completions, units and documents, to unpack over `/usr/local`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::contents::{self, Contents, Prefix, documents};
use super::release::{Arch, Release};
use super::stage::{PLAIN, Stage};
use crate::run::must;

pub(crate) fn archive(release: &Release, contents: &Contents) -> Result<PathBuf> {
    let name = format!("tenure-{}-{}-linux", release.version, Arch::of_this_machine()?.rust);
    let stage = Stage::new(release.out.join("stage/archive"))?;
    contents.lay_out(&stage, &format!("{name}/"), Prefix::Local)?;
    let documented = format!("{name}/share/doc/tenure/");
    documents(&stage, &documented)?;
    stage.write(&format!("{documented}tenure.example.toml"), PLAIN, &contents.settings)?;
    for unit in ["tenure.service", "tenure-run@.service"] {
        let text = contents::text(&format!("deploy/systemd/{unit}"))?;
        stage.write(&format!("{name}/lib/systemd/system/{unit}"), PLAIN, text)?;
    }
    let archive = release.out.join(format!("{name}.tar.gz"));
    pack(release, stage.root(), &name, &archive)?;
    Ok(archive)
}

/// Archives `name` of a folder: sorted, owned by root, all times that of the release.
pub(crate) fn pack(release: &Release, folder: &Path, name: &str, archive: &Path) -> Result<()> {
    let options = [
        "--create",
        "--sort=name",
        "--format=gnu",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
    ];
    must(
        Command::new("tar")
            .args(options)
            .arg(format!("--mtime=@{}", release.epoch))
            .args(["--use-compress-program", release.gzip()])
            .arg("--file")
            .arg(archive)
            .arg("--directory")
            .arg(folder)
            .arg(name),
    )
}
