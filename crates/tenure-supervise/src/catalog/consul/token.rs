//! The ACL token of an agent.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_core::clock::{Clock, within};

use crate::blocking_thread::{BlockingError, BlockingThread};

/// The maximum length of a token.
const LONGEST: u64 = 4096;

/// The source of the token.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Token(Source);

#[derive(Clone, PartialEq, Eq, Default)]
enum Source {
    #[default]
    None,
    Fixed(String),
    File(PathBuf),
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::None => f.write_str("Token(none)"),
            Source::Fixed(_) => f.write_str("Token(…)"),
            Source::File(path) => write!(f, "Token({})", path.display()),
        }
    }
}

impl Token {
    /// No token.
    #[must_use]
    pub const fn none() -> Self {
        Self(Source::None)
    }

    /// This token, like `CONSUL_HTTP_TOKEN`.
    #[must_use]
    pub fn fixed(token: impl Into<String>) -> Self {
        Self(Source::Fixed(token.into()))
    }

    /// The content of a file, like `CONSUL_HTTP_TOKEN_FILE`. The file is read before every request, so a rotated token
    /// is used immediately.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Source::File(path.into()))
    }
}

/// Reads the token under a deadline.
#[derive(Debug, Clone)]
pub(super) struct TokenReader {
    token: Token,
    disk: Arc<BlockingThread>,
    /// Serializes callers: the blocking thread rejects a second call while it is busy.
    turn: Arc<tokio::sync::Mutex<()>>,
    last: Arc<Mutex<Option<String>>>,
    /// The token of the last registration.
    registered: Arc<Mutex<Option<String>>>,
}

impl TokenReader {
    pub(super) fn new(token: Token) -> Self {
        Self {
            token,
            disk: Arc::new(BlockingThread::start("token")),
            turn: Arc::default(),
            last: Arc::default(),
            registered: Arc::default(),
        }
    }

    /// Whether no token is configured.
    pub(super) fn is_none(&self) -> bool {
        self.token == Token::none()
    }

    /// Records that a registration was made with the last token.
    pub(super) fn registers(&self) {
        let last = self.last().clone();
        *self.registered() = last;
    }

    /// Whether the token has changed since the registration. The agent keeps the old token for removing the service,
    /// and cannot do so once it is revoked.
    pub(super) fn is_rotated(&self) -> bool {
        let registered = self.registered().clone();
        registered.is_some() && registered != *self.last()
    }

    /// The current token. If the file cannot be read, the last one.
    pub(super) async fn now(&self, clock: &dyn Clock, bound: Duration) -> Option<String> {
        let path = match &self.token.0 {
            Source::None => return None,
            Source::Fixed(token) => return Some(token.clone()),
            Source::File(path) => path.clone(),
        };
        let shown = path.display().to_string();
        let reading = async {
            let _turn = self.turn.lock().await;
            self.disk.run(clock, bound, move || read(&path)).await
        };
        let read = within(clock, bound, reading)
            .await
            .unwrap_or(Err(BlockingError::TimedOut));
        let error = match read {
            Ok(Ok(token)) => {
                *self.last() = Some(token.clone());
                return Some(token);
            }
            Ok(Err(error)) => error.to_string(),
            Err(missed) => missed.to_string(),
        };
        tracing::warn!(path = shown, error, "cannot read the token file");
        self.last().clone()
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn registered(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    if std::fs::metadata(path)?.len() > LONGEST {
        return Err(std::io::Error::other("too large for a token"));
    }
    let token = std::fs::read_to_string(path)?.trim().to_owned();
    if token.is_empty() {
        // The writer of the file may not have finished.
        return Err(std::io::Error::other("empty"));
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::clock::SystemClock;

    #[tokio::test]
    async fn unreadable_token_file_keeps_the_last_token() {
        let dir = tempfile::tempdir().unwrap();
        let (path, clock) = (dir.path().join("token"), SystemClock::new());
        let reader = TokenReader::new(Token::file(&path));
        let now = || reader.now(&clock, Duration::from_secs(10));
        assert_eq!(now().await, None);
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(now().await.as_deref(), Some("one"));
        std::fs::write(&path, "").unwrap();
        assert_eq!(now().await.as_deref(), Some("one"));
        assert!(!reader.is_rotated(), "nothing was registered");
        reader.registers();
        std::fs::write(&path, "two").unwrap();
        assert_eq!(now().await.as_deref(), Some("two"));
        assert!(reader.is_rotated());
        reader.registers();
        assert!(!reader.is_rotated());
    }

    #[test]
    fn debug_output_hides_the_token() {
        assert!(!format!("{:?}", Token::fixed("secret")).contains("secret"));
    }
}
