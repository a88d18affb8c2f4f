//! The state of a registration in a catalog.

use std::fmt;

/// The phase of the registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Phase {
    /// Not wanted and not registered.
    #[default]
    Absent,
    /// Wanted and not registered yet.
    Registering,
    /// Registered, and the last beat succeeded.
    Passing,
    /// Registered, and the last beat failed.
    Unconfirmed,
    /// The agent rejects our token. Retries continue.
    Forbidden,
    /// Another life of this service registered the id since. It is left alone while it exists.
    Taken,
    /// Not wanted any more, and may still be registered.
    Removing,
}

impl Phase {
    /// The word for it in JSON and in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Registering => "registering",
            Self::Passing => "passing",
            Self::Unconfirmed => "unconfirmed",
            Self::Forbidden => "forbidden",
            Self::Taken => "taken",
            Self::Removing => "removing",
        }
    }
}

/// The status at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Where it is.
    pub phase: Phase,
    /// The last failure; `None` after a success.
    pub reason: Option<String>,
    /// Consecutive failed turns.
    pub failed_in_a_row: u32,
    /// Whether clients may be routed to the service: it was passing, and its removal is not confirmed.
    pub listed: bool,
    /// The sequence number of the last confirmed desired state.
    pub(crate) confirmed: u64,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.phase.as_str())?;
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}
