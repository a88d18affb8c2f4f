//! The log of a roster: every state change of a provider, written once, in the step that made it.

use serde::{Deserialize, Serialize};

use super::provider::Version;
use crate::id::ProviderId;
use crate::membership::EndReason;
use crate::time::StoreTime;

/// A state change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The provider may take work again.
    Activated,
    /// The provider may not take work.
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

    /// Parses the name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Activated, Self::Deactivated, Self::Online, Self::Offline]
            .into_iter()
            .find(|change| change.as_str() == name)
    }
}

/// The reason of a state change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A request of the provider, or of a program on its behalf.
    Asked,
    /// A request of an operator.
    Operator,
    /// An operator deactivated the provider, which took it offline.
    Deactivated,
    /// A statement of another program changed the row.
    Edited,
    /// The tenure ended.
    #[serde(untagged)]
    Ended(EndReason),
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

    /// Parses the name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Asked, Self::Operator, Self::Deactivated, Self::Edited]
            .into_iter()
            .find(|reason| reason.as_str() == name)
            .or_else(|| EndReason::parse(name).map(Self::Ended))
    }
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = RosterLogEntry))]
pub struct LogEntry {
    /// Rises along the log, with gaps.
    pub id: u64,
    /// The provider.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub provider: ProviderId,
    /// The change: `activated`, `deactivated`, `online` or `offline`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub change: Change,
    /// The reason: `asked`, `operator`, `deactivated`, `edited` (by a statement of another program), or how its tenure
    /// ended (`lapsed`, `left`, `superseded`, `expelled`, `unknown`).
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub reason: Reason,
    /// The time, on the ledger's clock.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub at: StoreTime,
    /// The resulting version of the provider's row.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub version: Version,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_round_trip_by_name() {
        let ended = EndReason::Lapsed;
        for reason in [
            Reason::Asked,
            Reason::Operator,
            Reason::Deactivated,
            Reason::Edited,
            Reason::Ended(ended),
        ] {
            let name = serde_json::to_value(reason).unwrap();
            assert_eq!(name, reason.as_str());
            assert_eq!(serde_json::from_value::<Reason>(name).unwrap(), reason);
            assert_eq!(Reason::parse(reason.as_str()), Some(reason));
        }
        for change in [Change::Activated, Change::Deactivated, Change::Online, Change::Offline] {
            assert_eq!(serde_json::to_value(change).unwrap(), change.as_str());
        }
    }
}
