//! The outer layer of errors: few kinds, each telling what to do, and whether state may have changed.
//!
//! Each store keeps its own precise causes as the `source` of these. A kind is chosen by what the caller can do about
//! it, not by where it arose.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::membership::EndReason;

/// What most operations of Tenure answer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, by what can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input breaks a rule. Nothing changed; the message names value, rule and fix. Retrying is useless.
    Invalid,
    /// The tenure named in the call has ended, for this reason. Nothing else changed. Stop acting under it; join again
    /// only after `Lapsed` or `Unknown`.
    Ended(EndReason),
    /// Somebody alive holds what was asked for. Nothing changed.
    Held,
    /// The caller is not (or no longer) the holder of what it wanted to release. Nothing changed.
    NotOwner,
    /// There is no such thing. Nothing changed.
    NotFound,
    /// The group is inside a grace period and does not give this out yet. Nothing changed; retry after
    /// [`Error::retry_after`].
    Unsettled,
    /// The call reached the store after its not-after time. Nothing changed.
    TooLate,
    /// The store cannot be reached or cannot serve. [`Error::outcome`] tells whether the call may have taken effect.
    /// Retry later; it is nobody's death.
    Unavailable,
    /// The store refuses our credentials or permissions. Nothing changed; an operator has to act.
    Denied,
    /// The configuration cannot work. Nothing changed; an operator has to act.
    Misconfigured,
    /// This store cannot do that by its nature. Nothing changed.
    Unsupported,
    /// A bug, or data that nobody of us wrote. Please report it.
    Internal,
}

/// Whether a failed call may have changed the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It certainly changed nothing.
    Unchanged,
    /// The reply was lost: it may have been applied, or may still be, up to its not-after time. Read back.
    Unknown,
}

/// An error of Tenure: a kind to act on, a sentence for people, and the cause.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    outcome: Outcome,
    retry_after: Option<Duration>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of a kind, with the sentence that tells people what to do. Its outcome is `Unchanged`.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            outcome: Outcome::Unchanged,
            retry_after: None,
            source: None,
        }))
    }

    /// Bad input.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// The tenure ended.
    #[must_use]
    pub fn ended(tenure: impl fmt::Display, reason: EndReason) -> Self {
        let message = match reason {
            EndReason::Unknown => format!("the store does not know the tenure {tenure}; join again"),
            EndReason::Lapsed => format!("the tenure {tenure} has lapsed; join again"),
            EndReason::Left => format!("the tenure {tenure} has left"),
            EndReason::Superseded => format!("the tenure {tenure} was superseded by a newer join of the same member"),
            EndReason::Expelled => format!("the tenure {tenure} was expelled by an operator"),
        };
        Self::new(ErrorKind::Ended(reason), message)
    }

    /// The store is out of reach or cannot serve; says whether the call may have taken effect.
    pub fn unavailable(message: impl Into<Cow<'static, str>>, outcome: Outcome) -> Self {
        let mut error = Self::new(ErrorKind::Unavailable, message);
        error.0.outcome = outcome;
        error
    }

    /// A call that arrived after its not-after time.
    #[must_use]
    pub fn too_late() -> Self {
        Self::new(
            ErrorKind::TooLate,
            "the call reached the store after its not-after time and changed nothing",
        )
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Adds when to try again.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the store may have changed.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// When trying again makes sense, if that is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// The sentence without its causes.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Whether the store was out of reach.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.kind() == ErrorKind::Unavailable
    }

    /// The sentence with all its causes, `a: b: c`.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut next = StdError::source(self);
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({:?}): {}", self.0.kind, self.0.outcome, self.chain())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

const _: () = {
    const fn goes_between_threads<T: Send + Sync>() {}
    goes_between_threads::<Error>();
};
