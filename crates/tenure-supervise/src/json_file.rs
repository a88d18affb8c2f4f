//! A small JSON file that shows a value as it changes. Readers never see a partial file, and a file system that hangs blocks
//! only the thread that writes.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tempfile::{NamedTempFile, TempDir};
use tokio::sync::watch;

/// Where temporary files can be made if the first place, that of `TMPDIR`, is read-only: memory of the machine.
const MEMORY: [&str; 2] = ["/dev/shm", "/run"];

/// Makes a private directory for such a file. It is removed when the result is dropped.
///
/// # Errors
/// The system's, for the directory of temporary files.
pub fn directory(prefix: &str) -> io::Result<TempDir> {
    let make = |place: &Path| tempfile::Builder::new().prefix(prefix).tempdir_in(place);
    make(&std::env::temp_dir()).or_else(|error| {
        let elsewhere = MEMORY.iter().find_map(|place| make(Path::new(place)).ok());
        elsewhere.ok_or(error)
    })
}

/// Updates the file until the sender is dropped. A write failure is logged once per reason.
pub async fn keep<T: Serialize + Clone + Send + Sync + 'static>(path: PathBuf, mut value: watch::Receiver<T>) {
    let mut failed = None;
    loop {
        let now = value.borrow_and_update().clone();
        let error = write(path.clone(), now).await.err().map(|error| error.to_string());
        if let Some(error) = error.as_ref().filter(|error| failed.as_ref() != Some(*error)) {
            tracing::warn!(path = %path.display(), error, "the file cannot be written");
        }
        failed = error;
        if value.changed().await.is_err() {
            return;
        }
    }
}

/// Writes the file once, on a thread of its own.
///
/// # Errors
/// The system's. The file is as before then.
pub async fn write(path: PathBuf, value: impl Serialize + Send + 'static) -> io::Result<()> {
    let written = tokio::task::spawn_blocking(move || replace(&path, &value)).await;
    written.map_err(io::Error::other)?
}

/// Replaces the file atomically.
fn replace(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut next = NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))?;
    serde_json::to_writer(&mut next, value)?;
    next.write_all(b"\n")?;
    // The child and health checks may run as other users.
    next.as_file()
        .set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    next.persist(path)?;
    Ok(())
}
