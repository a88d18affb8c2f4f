//! Reloads a client's certificate files, so that a running process uses a replaced certificate.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rustls::ClientConfig;

use crate::client::ClientTls;
use crate::error::{Result, TlsError};

/// A client's files and a hash of their last content. The machine's authorities are not watched; they are read again
/// only when a watched file changes.
#[derive(Debug)]
pub struct ReloadingTls {
    files: ClientTls,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    prints: Vec<Option<u64>>,
    trouble: Option<String>,
}

/// The result of a reload.
#[derive(Debug)]
pub enum Reload {
    /// The content is the same, or fails with an error already reported.
    Unchanged,
    /// The content has changed.
    Changed(Box<ClientConfig>),
    /// The new content is unusable. The old configuration stays in use, and the next reload tries again.
    Unusable(TlsError),
}

impl ReloadingTls {
    /// Reads the files.
    ///
    /// # Errors
    /// Those of [`ClientTls::config`].
    pub fn new(files: ClientTls) -> Result<(Self, ClientConfig)> {
        // Hashed before the files are read, so the next reload notices a change in between.
        let prints = prints(&files);
        let config = files.config()?;
        let seen = Mutex::new(Seen { prints, trouble: None });
        Ok((Self { files, seen }, config))
    }

    /// Reads the files again if they have changed. Blocks on disk I/O.
    pub fn reload(&self) -> Reload {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let prints = prints(&self.files);
        if prints == seen.prints && seen.trouble.is_none() {
            return Reload::Unchanged;
        }
        match self.files.config() {
            Ok(config) => {
                *seen = Seen { prints, trouble: None };
                Reload::Changed(Box::new(config))
            }
            Err(error) => {
                let trouble = Some(error.to_string());
                if seen.trouble == trouble {
                    return Reload::Unchanged;
                }
                seen.trouble = trouble;
                Reload::Unusable(error)
            }
        }
    }
}

/// A hash of each file; `None` for a file that cannot be read.
fn prints(files: &ClientTls) -> Vec<Option<u64>> {
    let print = |path: &PathBuf| {
        let bytes = std::fs::read(path).ok()?;
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Some(hasher.finish())
    };
    let paths = [&files.ca, &files.cert, &files.key].into_iter().flatten();
    paths.map(print).collect()
}
