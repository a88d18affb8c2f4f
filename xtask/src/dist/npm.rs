//! The npm package: the program as a command. It is installed by `npm install` without a script that runs.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use super::contents::{Contents, documents};
use super::release::{Arch, Release};
use super::stage::{PLAIN, PROGRAM, Stage};
use super::tar;

pub(crate) fn package(release: &Release, contents: &Contents) -> Result<PathBuf> {
    let arch = Arch::of_this_machine()?;
    let stage = Stage::new(release.out.join("stage/npm"))?;
    stage.copy(&contents.binary, "package/bin/tenure", PROGRAM)?;
    let pages: Vec<String> = contents
        .manuals
        .iter()
        .map(|(name, _)| format!("share/man/man1/{name}"))
        .collect();
    contents.lay_out_manuals(&stage, "package/")?;
    documents(&stage, "package/")?;
    let manifest = json!({
        "name": "tenure-cli",
        "version": release.version,
        "description": super::wheel::SUMMARY,
        "license": "(MIT OR Apache-2.0)",
        "bin": { "tenure": "bin/tenure" },
        "man": pages,
        "os": ["linux"],
        "cpu": [arch.node],
        "libc": ["glibc"],
        "preferUnplugged": true,
    });
    stage.write("package/package.json", PLAIN, format!("{manifest:#}\n"))?;
    let name = format!("tenure-cli-{}-linux-{}.tgz", release.version, arch.node);
    let archive = release.out.join(name);
    tar::pack(release, stage.root(), "package", &archive)?;
    Ok(archive)
}
