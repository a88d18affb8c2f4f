//! Sweeps and the state of a group on the wire.

use serde::{Deserialize, Serialize};
use tenure_core::id::Group;
use tenure_core::sweep::{GroupStatus, SweepReport};

/// `POST …/sweep`; the whole body may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SweepRequest {
    /// Only tell what would go.
    #[serde(default)]
    pub dry_run: bool,
    /// Lift the brake. Never overrides a grace period.
    #[serde(default)]
    pub force: bool,
    /// Also look for drift between sessions and their index, and repair it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reconcile: bool,
    /// A name for the pass, which its events carry; made up when not given. Letters, digits, `.`, `_`, `:`, `-`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<String>,
    /// How long to wait for what becomes releasable in a moment (holdings are left alone for 250 ms after an end), at
    /// most 2,000. 300 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// What a pass did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SweepAnswer {
    /// The name of the pass.
    pub pass: String,
    /// Whether it only looked.
    pub dry_run: bool,
    /// How many entries were removed.
    pub evicted_total: u64,
    /// How many leases were released.
    #[serde(default)]
    pub leases_total: u64,
    /// How many connections of sessions were released.
    #[serde(default)]
    pub connections_total: u64,
    /// All of it.
    #[serde(flatten)]
    pub report: SweepReport,
}

impl SweepAnswer {
    /// Puts the answer together.
    #[must_use]
    pub fn new(pass: String, dry_run: bool, report: SweepReport) -> Self {
        Self {
            pass,
            dry_run,
            evicted_total: report.evicted_total(),
            leases_total: report.leases_total(),
            connections_total: report.connections_total(),
            report,
        }
    }
}

/// The state of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupState {
    /// Which.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub group: Group,
    /// Whether it is past the grace after its last gap.
    pub settled: bool,
    /// What the store says.
    #[serde(flatten)]
    pub status: GroupStatus,
}

impl GroupState {
    /// Puts the state of a group together.
    #[must_use]
    pub fn new(group: Group, status: GroupStatus) -> Self {
        Self {
            group,
            settled: status.unsettled.is_none(),
            status,
        }
    }
}
