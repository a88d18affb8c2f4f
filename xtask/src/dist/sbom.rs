//! The bill of materials in CycloneDX: every crate that is linked into the program or builds it, with version, licence,
//! checksum and dependencies.

mod components;
mod tree;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use self::components::{Crates, reference};
use self::tree::Tree;
use super::release::{Arch, Release};
use crate::run::output;

pub(crate) fn write(release: &Release) -> Result<PathBuf> {
    let bill = bill(release)?;
    let file = release.out.join(format!("tenure-{}.cdx.json", release.version));
    fs::write(&file, format!("{bill:#}\n")).with_context(|| format!("write {}", file.display()))?;
    Ok(file)
}

pub(super) fn bill(release: &Release) -> Result<Value> {
    let target = format!("{}-unknown-linux-gnu", Arch::of_this_machine()?.rust);
    let linked = Tree::of_program(&target, "normal,no-proc-macro")?;
    let all = Tree::of_program(&target, "normal,build")?;
    let crates = Crates::read(&target)?;
    let root = all.root().context("cargo tree printed nothing")?;

    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for (package, needs) in all.packages() {
        if package != root {
            components.push(crates.component(package, linked.contains(package))?);
        }
        let mut needs: Vec<_> = needs.iter().map(reference).collect();
        needs.extend(crates.bundled(package).map(|bundled| bundled.reference()));
        dependencies.push(json!({ "ref": reference(package), "dependsOn": needs }));
        if let Some(bundled) = crates.bundled(package) {
            components.push(bundled.component());
            dependencies.push(json!({ "ref": bundled.reference(), "dependsOn": [] }));
        }
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": timestamp(release.epoch)?,
            "component": {
                "type": "application",
                "bom-ref": reference(root),
                "name": "tenure",
                "version": release.version,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
                "purl": reference(root),
            },
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

fn timestamp(epoch: u64) -> Result<String> {
    let text = output("date", &["--utc", &format!("--date=@{epoch}"), "+%Y-%m-%dT%H:%M:%SZ"]);
    Ok(text.context("run date (install coreutils)")?.trim().to_owned())
}
