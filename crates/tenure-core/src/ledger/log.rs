//! The log of a roster: every change of a provider's state, once, written in the step that made it.

use serde::{Deserialize, Serialize};

use super::provider::Version;
use crate::id::ProviderId;
use crate::membership::EndReason;
use crate::time::StoreTime;

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The provider, or a program in its name, asked.
    Asked,
    /// An operator did.
    Operator,
    /// It went offline because an operator deactivated it.
    Deactivated,
    /// The row was changed by another program's statement.
    Edited,
    /// The tenure it was online under ended.
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

    /// From the name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Asked, Self::Operator, Self::Deactivated, Self::Edited]
            .into_iter()
            .find(|reason| reason.as_str() == name)
            .or_else(|| EndReason::parse(name).map(Self::Ended))
    }
}

/// One change of a provider's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = RosterLogEntry))]
pub struct LogEntry {
    /// Rises along the log, with holes.
    pub id: u64,
    /// Whose state.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub provider: ProviderId,
    /// What changed: `activated`, `deactivated`, `online` or `offline`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub change: Change,
    /// Why: `asked`, `operator`, `deactivated`, `edited` (by a statement of somebody's own), or how its tenure ended
    /// (`lapsed`, `left`, `superseded`, `expelled`, `unknown`).
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub reason: Reason,
    /// When, on the ledger's clock.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub at: StoreTime,
    /// The version that the provider's row got by it.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub version: Version,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_one_name_everywhere() {
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
