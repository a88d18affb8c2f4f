//! How things stand between us and a catalog.

use std::fmt;

/// Where the registration is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Phase {
    /// It is not wanted, and not there.
    #[default]
    Absent,
    /// It is wanted and not there yet.
    Registering,
    /// It is there, and its last beat was taken.
    Passing,
    /// It was there, and the last beat failed.
    Unconfirmed,
    /// The agent refuses our token. It is tried on.
    Forbidden,
    /// Another life of this service has registered it since. We leave it alone for as long as it is there.
    Taken,
    /// It is not wanted any more, and may still be there.
    Removing,
}

impl Phase {
    /// The word for it on the wire and in logs.
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

/// A registration at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Where it is.
    pub phase: Phase,
    /// What went wrong last; `None` while all is well.
    pub reason: Option<String>,
    /// Failed turns since the last good one.
    pub failed_in_a_row: u32,
    /// Others may be sent to the service: it was passing, and is not known to be gone.
    pub listed: bool,
    /// Which wish the catalog has confirmed last.
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
