//! An operator's word that nothing was held, on the wire.

use serde::{Deserialize, Serialize};
use tenure_core::id::Group;
use tenure_core::settling::GapCause;
use tenure_core::sweep::SettleReport;

/// `POST …/settle`; the whole body may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettleRequest {
    /// The cause of the graces to end: `silent`, `clock_back`, `data_loss` or `tail_loss`. Those whose cause is `new` when not
    /// given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub cause: Option<GapCause>,
}

/// A group whose grace continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Left {
    /// Which.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub group: Group,
    /// Why: another cause than the one that was asked for.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub cause: GapCause,
}

/// What it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettleAnswer {
    /// How many groups' graces ended.
    pub settled: u64,
    /// Groups whose grace continues.
    pub left: Vec<Left>,
}

impl From<SettleReport> for SettleAnswer {
    fn from(report: SettleReport) -> Self {
        let left = report.left.into_iter().map(|(group, cause)| Left { group, cause });
        Self {
            settled: report.settled,
            left: left.collect(),
        }
    }
}

impl From<SettleAnswer> for SettleReport {
    fn from(answer: SettleAnswer) -> Self {
        Self {
            settled: answer.settled,
            left: answer.left.into_iter().map(|left| (left.group, left.cause)).collect(),
        }
    }
}
