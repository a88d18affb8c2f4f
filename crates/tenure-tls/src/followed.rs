//! A client's files that are looked at again: a certificate that is replaced is used by a process that runs on.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rustls::ClientConfig;

use crate::client::ClientTls;
use crate::error::{Result, TlsError};

/// The files of a client, and what was in them when they were looked at last. The machine's authorities are not followed:
/// they are read again only with what the files have that is new.
#[derive(Debug)]
pub struct Followed {
    files: ClientTls,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    prints: Vec<Option<u64>>,
    trouble: Option<String>,
}

/// The result of a look at the files.
#[derive(Debug)]
pub enum Look {
    /// There is nothing new to know: they are as they were, or no more usable than an earlier look has said.
    Same,
    /// Something else is in them now.
    Changed(Box<ClientConfig>),
    /// What is in them now cannot be used. What they had before stays in use, and the next look reads them again.
    Unusable(TlsError),
}

impl Followed {
    /// Reads the files.
    ///
    /// # Errors
    /// Those of [`ClientTls::config`].
    pub fn new(files: ClientTls) -> Result<(Self, ClientConfig)> {
        // Before they are read: a file that is replaced in between is noticed by the next look.
        let prints = prints(&files);
        let config = files.config()?;
        let seen = Mutex::new(Seen { prints, trouble: None });
        Ok((Self { files, seen }, config))
    }

    /// Looks at the files. Blocks for as long as the disk takes.
    pub fn look(&self) -> Look {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let prints = prints(&self.files);
        if prints == seen.prints && seen.trouble.is_none() {
            return Look::Same;
        }
        match self.files.config() {
            Ok(config) => {
                *seen = Seen { prints, trouble: None };
                Look::Changed(Box::new(config))
            }
            Err(error) => {
                let trouble = Some(error.to_string());
                if seen.trouble == trouble {
                    return Look::Same;
                }
                seen.trouble = trouble;
                Look::Unusable(error)
            }
        }
    }
}

/// What the files have in them, in short. A file that cannot be read has nothing.
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
