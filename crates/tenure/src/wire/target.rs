//! Targets on the wire.

use serde::{Deserialize, Serialize};
use tenure_core::error::Result;
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::Token;
use tenure_core::store::{DEFAULT_PAGE, Page, PageRequest};
use tenure_core::target::{self as core, TargetSpec};

use crate::nodes::PlacedTarget;

/// `PUT …/targets/{t}`; the body may be omitted. Replaces the target: an absent field gets its default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TargetRequest {
    /// Whether work on it is paused; its holder then releases the lease. Default `false`.
    #[serde(default)]
    pub paused: bool,
    /// Its share of a node's load, 1 to 1,000; default 1. Only used with bounded load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

impl TargetRequest {
    /// Converts to a specification.
    ///
    /// # Errors
    /// `Invalid` for a weight outside 1..=1000.
    pub fn spec(self) -> Result<TargetSpec> {
        let usual = TargetSpec::default();
        let spec = TargetSpec {
            paused: self.paused,
            weight: self.weight.unwrap_or(usual.weight),
        };
        spec.check()
    }
}

impl From<TargetSpec> for TargetRequest {
    fn from(spec: TargetSpec) -> Self {
        Self {
            paused: spec.paused,
            weight: Some(spec.weight),
        }
    }
}

/// A target with its preferred node and the holder of its lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Target {
    /// Its name, which is also the name of its lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub target: LeaseName,
    /// Whether work on it is paused.
    pub paused: bool,
    /// Its share of a node's load.
    pub weight: u32,
    /// The first node in its placement, among living members that are not draining, without bounded load. A preference;
    /// the lease decides. Absent without such nodes, and with `plain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub preferred: Option<MemberId>,
    /// The member that holds its lease. Absent if the lease is free, and with `plain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub holder: Option<MemberId>,
    /// With a holder: the tenure that holds the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenure: Option<TenureId>,
    /// With a holder: the fencing token of the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub token: Option<Token>,
    /// With a holder: whether that tenure is alive now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alive: Option<bool>,
}

impl From<PlacedTarget> for Target {
    fn from(placed: PlacedTarget) -> Self {
        let mut shown = Self::from(placed.target);
        shown.preferred = placed.preferred;
        if let Some(lease) = placed.lease {
            shown.holder = Some(lease.holder);
            shown.tenure = Some(lease.tenure);
            shown.token = Some(lease.token);
            shown.alive = Some(lease.alive);
        }
        shown
    }
}

impl From<core::Target> for Target {
    fn from(target: core::Target) -> Self {
        Self {
            target: target.target,
            paused: target.spec.paused,
            weight: target.spec.weight,
            preferred: None,
            holder: None,
            tenure: None,
            token: None,
            alive: None,
        }
    }
}

impl From<Target> for core::Target {
    fn from(target: Target) -> Self {
        Self {
            target: target.target,
            spec: TargetSpec {
                paused: target.paused,
                weight: target.weight,
            },
        }
    }
}

/// A page of targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TargetsPage {
    /// The targets.
    pub targets: Vec<Target>,
    /// The cursor for the next page, passed as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl From<Page<PlacedTarget>> for TargetsPage {
    fn from(page: Page<PlacedTarget>) -> Self {
        Self {
            targets: page.items.into_iter().map(Into::into).collect(),
            next: page.next,
        }
    }
}

/// Query of a target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct TargetQuery {
    /// Omit the preferred node and the holder, which is cheaper.
    #[serde(default)]
    pub plain: bool,
}

/// Query of the target listing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct TargetsQuery {
    /// The `next` of the previous page.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub after: Option<String>,
    /// Page size, 1 to 1,000; default 100.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<u32>,
    /// Omit the preferred nodes and holders, which is cheaper.
    #[serde(default)]
    pub plain: bool,
}

impl TargetsQuery {
    /// Converts to a page request.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000.
    pub fn request(self) -> Result<PageRequest> {
        PageRequest::new(self.after, self.limit.unwrap_or(DEFAULT_PAGE))
    }
}
