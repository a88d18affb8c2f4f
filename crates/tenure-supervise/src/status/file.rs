//! The status file. Readers never see a partial file.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use tokio::sync::watch;

use super::Status;

/// Updates the file until the sender of the status is dropped. A write failure is logged once per reason and does not
/// block the supervisor.
pub async fn keep_file(path: PathBuf, mut status: watch::Receiver<Status>) {
    let mut failed = None;
    loop {
        let (json, target) = (status.borrow_and_update().to_json(), path.clone());
        let written = tokio::task::spawn_blocking(move || replace(&target, &json)).await;
        let error = written
            .map_err(io::Error::other)
            .flatten()
            .err()
            .map(|error| error.to_string());
        if let Some(error) = error.as_ref().filter(|error| failed.as_ref() != Some(*error)) {
            tracing::warn!(path = %path.display(), error, "the status file cannot be written");
        }
        failed = error;
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// Replaces the file atomically.
fn replace(path: &Path, content: &str) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut next = NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))?;
    next.write_all(content.as_bytes())?;
    // The child and health checks may run as other users.
    next.as_file()
        .set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    next.persist(path)?;
    Ok(())
}
