//! The JSON file that names the current tenure for the command.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use tempfile::TempDir;
use tenure_core::clock::{Clock, within};
use tenure_core::id::{Group, MemberId, TenureId, Term};
use tenure_supervise::json_file;
use tokio::sync::watch;

/// How long the first write may take. The file system may hang.
const FIRST: Duration = Duration::from_secs(5);

/// The content of the file.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Content {
    pub(super) group: Group,
    pub(super) member: MemberId,
    pub(super) tenure: TenureId,
    pub(super) term: Term,
    pub(super) ttl_ms: u64,
}

/// The file. A temporary one is removed when this is dropped.
#[derive(Debug)]
pub(super) struct TenureFile {
    path: PathBuf,
    content: watch::Sender<Content>,
    _directory: Option<TempDir>,
}

impl TenureFile {
    /// Creates the file at the given path, or in a new private directory.
    pub(super) async fn create(wanted: Option<&Path>, content: Content, clock: &dyn Clock) -> anyhow::Result<Self> {
        let (path, directory) = match wanted {
            Some(path) => {
                let path = std::path::absolute(path).with_context(|| format!("{} is no path", path.display()))?;
                (path, None)
            }
            None => {
                let directory = json_file::directory("tenure-")
                    .context("no directory can be made for the tenure file; name one with --file")?;
                (directory.path().join("tenure.json"), Some(directory))
            }
        };
        let failed = || format!("the tenure file {} cannot be written", path.display());
        match within(clock, FIRST, json_file::write(path.clone(), content.clone())).await {
            Some(written) => written.with_context(failed)?,
            None => anyhow::bail!("{}: its file system hangs", failed()),
        }
        let (content, changes) = watch::channel(content);
        tokio::spawn(json_file::keep(path.clone(), changes));
        Ok(Self {
            path,
            content,
            _directory: directory,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the content, soon.
    pub(super) fn set(&self, content: Content) {
        self.content.send_replace(content);
    }
}
