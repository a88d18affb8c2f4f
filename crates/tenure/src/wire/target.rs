//! Targets on the wire.

use serde::{Deserialize, Serialize};
use tenure_core::error::Result;
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::Token;
use tenure_core::store::{DEFAULT_PAGE, Page, PageRequest};
use tenure_core::target::{self as core, TargetSpec};

use crate::nodes::Placed;

/// `PUT …/targets/{t}`; the whole body may be left out. What is not given is as in a new target: a target is replaced, not
/// patched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TargetRequest {
    /// Nobody is to work on it for now; whoever holds its lease gives it up. `false` when not given.
    #[serde(default)]
    pub paused: bool,
    /// Its share of a node's load, 1 to 1,000; 1 when not given. Only bounded load looks at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

impl TargetRequest {
    /// The specification it asks for.
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

/// A target, where a fleet would rather have it, and who works on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Target {
    /// Its name, and that of its lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub target: LeaseName,
    /// Whether nobody is to work on it for now.
    pub paused: bool,
    /// Its share of a node's load.
    pub weight: u32,
    /// The node it is placed on first: of the living members that do not drain. Only a preference, and without bounded
    /// load; the lease decides. Absent without such nodes, and with `plain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub preferred: Option<MemberId>,
    /// The member that holds its lease. Absent when nobody does, and with `plain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub holder: Option<MemberId>,
    /// With a holder: the tenure it holds the lease under.
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

impl From<Placed> for Target {
    fn from(placed: Placed) -> Self {
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

/// Targets, page by page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TargetsPage {
    /// The targets.
    pub targets: Vec<Target>,
    /// Pass it as `after` to read on; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl From<Page<Placed>> for TargetsPage {
    fn from(page: Page<Placed>) -> Self {
        Self {
            targets: page.items.into_iter().map(Into::into).collect(),
            next: page.next,
        }
    }
}

/// How much to tell about a target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct TargetQuery {
    /// Only the target itself: neither its preferred node nor its holder. Costs less.
    #[serde(default)]
    pub plain: bool,
}

/// Which page of targets, and how much to tell about each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct TargetsQuery {
    /// The `next` of the page before.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub after: Option<String>,
    /// At most this many, 1 to 1,000; 100 when not given.
    #[serde(
        default,
        deserialize_with = "super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<u32>,
    /// Only the targets themselves: neither their preferred nodes nor their holders. Costs less.
    #[serde(default)]
    pub plain: bool,
}

impl TargetsQuery {
    /// The page it asks for.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000.
    pub fn request(self) -> Result<PageRequest> {
        PageRequest::new(self.after, self.limit.unwrap_or(DEFAULT_PAGE))
    }
}
