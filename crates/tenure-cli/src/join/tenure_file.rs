//! The JSON file that names the current tenure for the command.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;
use tempfile::{NamedTempFile, TempDir};
use tenure_core::id::{Group, MemberId, TenureId, Term};

/// The content of the file.
#[derive(Debug, Serialize)]
pub(super) struct Content<'a> {
    pub(super) group: &'a Group,
    pub(super) member: &'a MemberId,
    pub(super) tenure: &'a TenureId,
    pub(super) term: Term,
    pub(super) ttl_ms: u64,
}

/// The file. A temporary one is removed when this is dropped.
#[derive(Debug)]
pub(super) struct TenureFile {
    path: PathBuf,
    _directory: Option<TempDir>,
}

impl TenureFile {
    /// Creates the file at the given path, or in a new private directory.
    pub(super) fn create(wanted: Option<&Path>, content: &Content<'_>) -> anyhow::Result<Self> {
        let file = match wanted {
            Some(path) => {
                let path = std::path::absolute(path).with_context(|| format!("{} is no path", path.display()))?;
                Self { path, _directory: None }
            }
            None => {
                let directory = tempfile::Builder::new()
                    .prefix("tenure-")
                    .tempdir()
                    .context("no directory can be made for the tenure file; name one with --file")?;
                Self {
                    path: directory.path().join("tenure.json"),
                    _directory: Some(directory),
                }
            }
        };
        file.write(content)?;
        Ok(file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the content atomically: a reader sees the old or the new file.
    pub(super) fn write(&self, content: &Content<'_>) -> anyhow::Result<()> {
        let replace = || -> anyhow::Result<()> {
            let directory = self.path.parent().context("it has no directory")?;
            let mut next = NamedTempFile::new_in(directory)?;
            serde_json::to_writer(&mut next, content)?;
            writeln!(next)?;
            next.persist(&self.path)?;
            Ok(())
        };
        replace().with_context(|| format!("the tenure file {} cannot be written", self.path.display()))
    }
}
