//! The log of a roster: every change of a provider's state, once, written in the step that made it.

use super::provider::Version;
use crate::id::ProviderId;
use crate::membership::EndReason;
use crate::time::StoreTime;

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// It may take work again.
    Activated,
    /// It may not.
    Deactivated,
    /// It came online.
    Online,
    /// It went offline.
    Offline,
}

impl Change {
    /// The name in the ledger and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Activated => "activated",
            Self::Deactivated => "deactivated",
            Self::Online => "online",
            Self::Offline => "offline",
        }
    }

    /// From the name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Activated, Self::Deactivated, Self::Online, Self::Offline]
            .into_iter()
            .find(|change| change.as_str() == name)
    }
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The provider, or a program in its name, asked.
    Asked,
    /// An operator did.
    Operator,
    /// It went offline because an operator deactivated it.
    Deactivated,
    /// The tenure it was online under ended.
    Ended(EndReason),
    /// Somebody changed the row by a statement of his own.
    Edited,
}

impl Reason {
    /// The name in the ledger and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Operator => "operator",
            Self::Deactivated => "deactivated",
            Self::Ended(reason) => reason.as_str(),
            Self::Edited => "edited",
        }
    }

    /// From the name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Asked, Self::Operator, Self::Deactivated, Self::Edited]
            .into_iter()
            .find(|reason| reason.as_str() == name)
            .or_else(|| EndReason::parse(name).map(Self::Ended))
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Rises along the log, with holes.
    pub id: u64,
    /// Whose state.
    pub provider: ProviderId,
    /// What changed.
    pub change: Change,
    /// Why.
    pub reason: Reason,
    /// When, on the ledger's clock.
    pub at: StoreTime,
    /// The version that the row got by it.
    pub version: Version,
}
