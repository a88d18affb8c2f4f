//! The token of an agent's access control.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_core::clock::{Clock, within};

use crate::off_thread::{Missed, OffThread};

/// No token is longer.
const LONGEST: u64 = 4096;

/// Where the token comes from.
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

    /// This one, as `CONSUL_HTTP_TOKEN` has it.
    #[must_use]
    pub fn fixed(token: impl Into<String>) -> Self {
        Self(Source::Fixed(token.into()))
    }

    /// The content of a file, as `CONSUL_HTTP_TOKEN_FILE` has it. It is read before every request, so that a token that
    /// was rotated is used from then on.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Source::File(path.into()))
    }
}

/// Reads the token, whatever the disk does.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    token: Token,
    disk: Arc<OffThread>,
    /// One caller at a time asks the disk: it answers no second one while it is busy.
    turn: Arc<tokio::sync::Mutex<()>>,
    last: Arc<Mutex<Option<String>>>,
    /// The one that a registration was made with.
    registered: Arc<Mutex<Option<String>>>,
}

impl Reader {
    pub(super) fn new(token: Token) -> Self {
        Self {
            token,
            disk: Arc::new(OffThread::start("token")),
            turn: Arc::default(),
            last: Arc::default(),
            registered: Arc::default(),
        }
    }

    /// Whether no token is sent at all.
    pub(super) fn is_none(&self) -> bool {
        self.token == Token::none()
    }

    /// A registration was made with the token that was read last.
    pub(super) fn registers(&self) {
        let last = self.last().clone();
        *self.registered() = last;
    }

    /// Whether the file has another token by now than the one that the registration was made with. The agent keeps that
    /// one for the day on which it takes the service out of the catalog, and cannot do so once it is revoked.
    pub(super) fn is_rotated(&self) -> bool {
        let registered = self.registered().clone();
        registered.is_some() && registered != *self.last()
    }

    /// The token now. When the file cannot be read, the one that was read last.
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
        let read = within(clock, bound, reading).await.unwrap_or(Err(Missed::Late));
        let error = match read {
            Ok(Ok(token)) => {
                *self.last() = Some(token.clone());
                return Some(token);
            }
            Ok(Err(error)) => error.to_string(),
            Err(missed) => missed.to_string(),
        };
        tracing::warn!(path = shown, error, "the file of the token cannot be read");
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
        // Whoever replaces the file may be about to write it.
        return Err(std::io::Error::other("empty"));
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::clock::SystemClock;

    #[tokio::test]
    async fn a_file_is_read_again_and_its_last_token_is_kept_while_it_cannot_be() {
        let dir = tempfile::tempdir().unwrap();
        let (path, clock) = (dir.path().join("token"), SystemClock::new());
        let reader = Reader::new(Token::file(&path));
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
    fn a_token_is_not_shown() {
        assert!(!format!("{:?}", Token::fixed("secret")).contains("secret"));
    }
}
