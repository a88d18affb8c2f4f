//! Bearer tokens for daemons that require authentication.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure_core::error::{Error, ErrorKind, Result};

/// The longest accepted token, in bytes.
const LONGEST: usize = 8 * 1024;

/// A bearer token, given as text or read from a file.
///
/// A token file is re-read when the daemon rejects the token, so a token can be rotated under a running client. The
/// text appears in no log, no error and no `Debug` output.
#[derive(Clone)]
pub struct AccessToken {
    #[cfg_attr(
        not(feature = "http"),
        allow(dead_code, reason = "only a client of a daemon shows it")
    )]
    text: Arc<str>,
    file: Option<Arc<Path>>,
}

impl AccessToken {
    /// A fixed token.
    ///
    /// # Errors
    /// `Misconfigured` if the text cannot be sent in a header. The error does not contain the text.
    pub fn new(text: &str) -> Result<Self> {
        let text = check(text, "the token")?;
        Ok(Self { text, file: None })
    }

    /// Reads a token from a file, ignoring surrounding white space.
    ///
    /// # Errors
    /// `Misconfigured`, naming the file.
    pub fn from_file(path: impl Into<PathBuf>) -> Result<Self> {
        let path: PathBuf = path.into();
        let text = read(&path)?;
        let file = Some(path.into());
        Ok(Self { text, file })
    }

    /// Re-reads the token file. `None` if there is no file, or its content is unchanged.
    ///
    /// # Errors
    /// `Misconfigured`, naming the file.
    #[cfg(feature = "http")]
    pub(crate) fn changed(&self) -> Result<Option<Self>> {
        let Some(path) = &self.file else {
            return Ok(None);
        };
        let text = read(path)?;
        let file = Some(Arc::clone(path));
        Ok((text != self.text).then_some(Self { text, file }))
    }

    /// The secret.
    #[cfg(feature = "http")]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessToken")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

fn read(path: &Path) -> Result<Arc<str>> {
    let mut text = String::new();
    let opened = std::fs::File::open(path);
    let read = opened.and_then(|file| file.take(LONGEST as u64 + 1).read_to_string(&mut text));
    if let Err(error) = read {
        return Err(refuse(format!("the token file {} cannot be read", path.display())).because(error));
    }
    check(&text, &format!("the token in {}", path.display()))
}

fn check(text: &str, what: &str) -> Result<Arc<str>> {
    let text = text.trim();
    if text.is_empty() {
        return Err(refuse(format!("{what} is empty")));
    }
    if text.len() > LONGEST || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(refuse(format!(
            "{what} is not a valid token: expected one word of visible ASCII characters"
        )));
    }
    Ok(text.into())
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::Misconfigured, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_tokens_are_rejected_and_never_printed() {
        let token = AccessToken::new(" tnr_0011 \n").unwrap();
        assert_eq!(&*token.text, "tnr_0011");
        assert!(!format!("{token:?}").contains("0011"));
        for bad in ["", " ", "two secrets", "sécret", "a\nb"] {
            let error = AccessToken::new(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured);
            assert!(!error.chain().contains("cret"), "{error}");
        }
    }

    #[test]
    fn token_file_is_reread_and_named_in_errors() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one\n").unwrap();
        let token = AccessToken::from_file(file.path()).unwrap();
        #[cfg(feature = "http")]
        {
            assert!(token.changed().unwrap().is_none());
            std::fs::write(file.path(), "two\n").unwrap();
            assert_eq!(token.changed().unwrap().unwrap().text(), "two");
        }
        std::fs::write(file.path(), "\n").unwrap();
        let name = file.path().display().to_string();
        assert!(
            AccessToken::from_file(file.path())
                .unwrap_err()
                .to_string()
                .contains(&name)
        );
        let gone = AccessToken::from_file("/nowhere/at/all").unwrap_err().chain();
        assert!(
            gone.contains("/nowhere/at/all") && gone.contains("No such file"),
            "{gone}"
        );
        drop(token);
    }
}
