//! The checksums of all published files, for `sha256sum --check`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::release::Release;

pub(crate) fn write(release: &Release, files: &[PathBuf]) -> Result<PathBuf> {
    let mut names: Vec<_> = files
        .iter()
        .filter_map(|file| file.strip_prefix(&release.out).ok())
        .collect();
    names.sort_unstable();
    let mut command = Command::new("sha256sum");
    let output = command
        .args(names)
        .current_dir(&release.out)
        .output()
        .context("run sha256sum")?;
    ensure!(output.status.success(), "sha256sum failed: {}", output.status);
    let file = release.out.join("SHA256SUMS");
    std::fs::write(&file, output.stdout).with_context(|| format!("write {}", file.display()))?;
    Ok(file)
}
