//! Tools from npm that tests run. They are installed into `target/npm`, in the versions of their lock file.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run::{find, is_set, must, root, target};

/// The folder with `package.json` and its lock file.
const PACKAGES: &str = "crates/tenure-server/tests/openapi";
/// The tool that the tests look for.
const TOOL: &str = "openapi-typescript";

/// Installs the tools if they are missing or outdated. Returns the tool that is still missing; in CI that is an error.
pub(crate) fn ensure() -> Result<Option<&'static str>> {
    let (source, target) = (root().join(PACKAGES), target().join("npm"));
    if is_current(&source, &target) {
        return Ok(None);
    }
    let Err(error) = install(&source, &target) else {
        return Ok(None);
    };
    if is_set("CI") {
        return Err(error.context(format!("install {TOOL}")));
    }
    eprintln!("warning: not installed: {TOOL} ({error:#}).\nGoing on; what needs it is skipped.\n");
    Ok(Some(TOOL))
}

/// npm writes `node_modules/.package-lock.json` last, so an interrupted installation is not current.
fn is_current(source: &Path, target: &Path) -> bool {
    let read = |folder: &Path| fs::read(folder.join("package-lock.json")).ok();
    target.join("node_modules/.package-lock.json").is_file() && read(source) == read(target)
}

fn install(source: &Path, target: &Path) -> Result<()> {
    if is_set("TENURE_NO_INSTALL") {
        bail!("TENURE_NO_INSTALL is set");
    }
    let npm = find("npm").context("this machine has no npm")?;
    fs::remove_dir_all(target).ok();
    fs::create_dir_all(target).with_context(|| format!("create {}", target.display()))?;
    for file in ["package.json", "package-lock.json"] {
        fs::copy(source.join(file), target.join(file)).with_context(|| format!("copy {file}"))?;
    }
    let options = ["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
    must(Command::new(npm).args(options).current_dir(target))
}
