//! Failures of an agent, by the possible reaction.

/// Why an agent did not do what was requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The agent cannot be reached. The request may have taken effect.
    #[error("the agent cannot be reached: {0}")]
    Unreachable(String),
    /// No connection to the agent could be made, so nothing was sent.
    #[error("the agent cannot be reached: {0}")]
    NotSent(String),
    /// The agent did not respond in time. The request may have taken effect, or may still.
    #[error("the agent does not respond in time")]
    Late,
    /// The agent rejects our token. Nothing changed.
    #[error("the agent rejects the token: {0}")]
    Forbidden(String),
    /// The agent rejects the request. Nothing changed.
    #[error("the agent rejects the request: {0}")]
    Refused(String),
    /// The agent behaved in an unexpected way.
    #[error("{0}")]
    Odd(String),
}

impl Failure {
    /// Whether the agent did not respond at all.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::NotSent(_) | Self::Late)
    }

    /// Whether the agent answered that the request had no effect.
    pub(crate) fn is_definite(&self) -> bool {
        matches!(self, Self::Forbidden(_) | Self::Refused(_))
    }

    /// Whether the request certainly had no effect and will have none.
    pub(crate) fn has_no_effect(&self) -> bool {
        self.is_definite() || matches!(self, Self::NotSent(_))
    }
}
