//! What goes wrong with an agent, by what can be done about it.

/// Why an agent did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It cannot be reached. The request may have taken effect.
    #[error("the agent cannot be reached: {0}")]
    Unreachable(String),
    /// It has not answered in time. The request may have taken effect, or may still.
    #[error("the agent does not answer in time")]
    Late,
    /// It refuses our token. Nothing changed.
    #[error("the agent refuses the token: {0}")]
    Forbidden(String),
    /// It refuses the request. Nothing changed.
    #[error("the agent refuses: {0}")]
    Refused(String),
    /// It did something else than it was asked.
    #[error("{0}")]
    Odd(String),
}

impl Failure {
    /// Whether the agent gave no answer at all.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Late)
    }

    /// Whether the request certainly had no effect and will have none.
    pub(crate) fn is_definite(&self) -> bool {
        matches!(self, Self::Forbidden(_) | Self::Refused(_))
    }
}
