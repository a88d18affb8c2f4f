//! The public error: a kind that says what to do, and whether state may have changed.
//!
//! Each store keeps its precise causes as the `source`. The kind follows from what the caller can do, not from where
//! the error arose.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::id::TenureId;
use crate::membership::EndReason;

/// The result of most operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error, by what the caller can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input breaks a rule. Nothing changed; the message has the value, the rule and the fix. Retrying does not
    /// help.
    Invalid,
    /// The tenure of the call has ended, for this reason. Nothing else changed. Stop acting under it; join again only
    /// after `Lapsed` or `Unknown`.
    Ended(EndReason),
    /// A living tenure holds the requested item. Nothing changed.
    Held,
    /// The caller does not hold the item it wanted to release. Nothing changed.
    NotOwner,
    /// The item does not exist. Nothing changed.
    NotFound,
    /// The group is within a grace period and does not grant this yet. Nothing changed; retry after
    /// [`Error::retry_after`].
    Unsettled,
    /// The call reached the store after its not-after. Nothing changed.
    TooLate,
    /// The store cannot be reached or cannot serve. [`Error::outcome`] says whether the call may have taken effect.
    /// Retry later. It says nothing about whether a member is alive.
    Unavailable,
    /// The store rejects the credentials or permissions. Nothing changed; an operator must act.
    Denied,
    /// The configuration cannot work. Nothing changed; an operator must act.
    Misconfigured,
    /// This store does not support the operation. Nothing changed.
    Unsupported,
    /// A bug, or data that Tenure did not write. Please report it.
    Internal,
}

/// Whether a failed call may have changed the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing changed.
    Unchanged,
    /// The reply was lost: the call may have been applied, or may still be until its not-after. Read the state back.
    Unknown,
}

/// An error: a kind, a message, and its cause.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    outcome: Outcome,
    retry_after: Option<Duration>,
    holder: Option<TenureId>,
    code: Option<&'static str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of a kind, with a message that says what to do. Its outcome is `Unchanged`.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            outcome: Outcome::Unchanged,
            retry_after: None,
            holder: None,
            code: None,
            source: None,
        }))
    }

    /// Invalid input.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// An ended tenure.
    #[must_use]
    pub fn ended(tenure: impl fmt::Display, reason: EndReason) -> Self {
        let message = match reason {
            EndReason::Unknown => format!("the store does not know the tenure {tenure}; join again"),
            EndReason::Lapsed => format!("the tenure {tenure} has lapsed; join again"),
            EndReason::Left => format!("the tenure {tenure} has left"),
            EndReason::Superseded => format!("the tenure {tenure} was superseded by a newer join of the same member"),
            EndReason::Expelled => format!("the tenure {tenure} was expelled by an operator"),
            EndReason::NoProgress => format!("the tenure {tenure} was ended by its own process: it made no progress"),
        };
        Self::new(ErrorKind::Ended(reason), message)
    }

    /// Sets whether the call may have taken effect.
    #[must_use]
    pub fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.0.outcome = outcome;
        self
    }

    /// The store cannot be reached or cannot serve; `outcome` says whether the call may have taken effect.
    pub fn unavailable(message: impl Into<Cow<'static, str>>, outcome: Outcome) -> Self {
        let mut error = Self::new(ErrorKind::Unavailable, message);
        error.0.outcome = outcome;
        error
    }

    /// A call that arrived after its not-after.
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

    /// Adds the time to retry after.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// Adds the tenure that holds what was asked for.
    #[must_use]
    pub fn with_holder(mut self, holder: TenureId) -> Self {
        self.0.holder = Some(holder);
        self
    }

    /// Adds the code of a daemon's refusal.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.0.code = Some(code);
        self
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the store may have changed.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// The time to retry after, if known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// With `NotOwner` and `Held`: the tenure that holds what was asked for, when the store named it.
    #[must_use]
    pub fn holder(&self) -> Option<&TenureId> {
        self.0.holder.as_ref()
    }

    /// The stable code of a daemon's refusal (`rate_limited`, `overloaded`, …), which is finer than the kind. `None` when
    /// no daemon refused the call.
    #[must_use]
    pub fn code(&self) -> Option<&'static str> {
        self.0.code
    }

    /// The message without causes.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Whether the kind is `Unavailable`.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.kind() == ErrorKind::Unavailable
    }

    /// The message with all causes, `a: b: c`.
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
