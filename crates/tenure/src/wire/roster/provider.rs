//! Providers on the wire.

use serde::{Deserialize, Serialize};
use tenure_core::error::{Error, Result};
use tenure_core::id::{ProviderId, TenureId};
use tenure_core::ledger::{self as core, Capacity, ProviderSpec, ProviderState, Version};
use tenure_core::store::{DEFAULT_PAGE, PageRequest};
use tenure_core::time::StoreTime;

use super::Source;
use crate::roster::ProviderView;

/// `PUT …/providers/{p}`; the whole body may be left out. What is not named stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProviderRequest {
    /// For people; at most 256 bytes, no control characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// How many engagements it can take, at most 100,000. `null`: the roster's `default_capacity`, also after that has
    /// changed, as for a new one without a capacity.
    #[serde(
        default,
        deserialize_with = "super::super::or_null",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>))]
    pub capacity: Option<Option<u32>>,
}

impl ProviderRequest {
    /// What it asks for.
    ///
    /// # Errors
    /// `Invalid`, with the limit.
    pub fn spec(self) -> Result<ProviderSpec> {
        let spec = ProviderSpec::from(self);
        spec.check()?;
        Ok(spec)
    }
}

impl From<ProviderRequest> for ProviderSpec {
    fn from(request: ProviderRequest) -> Self {
        Self {
            display_name: request.display_name,
            capacity: match request.capacity {
                None => Capacity::Keep,
                Some(None) => Capacity::Default,
                Some(Some(capacity)) => Capacity::Own(capacity),
            },
        }
    }
}

impl From<ProviderSpec> for ProviderRequest {
    fn from(spec: ProviderSpec) -> Self {
        Self {
            display_name: spec.display_name,
            capacity: match spec.capacity {
                Capacity::Keep => None,
                Capacity::Default => Some(None),
                Capacity::Own(capacity) => Some(Some(capacity)),
            },
        }
    }
}

/// A provider: what the ledger says of it, and whether it is there now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Provider {
    /// Who.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub provider: ProviderId,
    /// For people; `null` when it has none.
    #[serde(default)]
    pub display_name: Option<String>,
    /// What the operator wants: a deactivated provider takes no work, and nothing but activating changes that.
    pub active: bool,
    /// Whether it is online. From the mirror: under a tenure that is alive now, as `stats` counts it.
    pub online: bool,
    /// Whether the tenure it is online under is alive now: it was heard of lately.
    pub alive: bool,
    /// Whether it can be called: online, active and alive.
    pub reachable: bool,
    /// How many engagements it has that are pending or active.
    pub occupancy: u32,
    /// How many it can take.
    pub capacity: u32,
    /// Its last heartbeat; `null` when none is known. Of one that is offline it is the last that the ledger was told, which
    /// happens once a minute.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub last_heartbeat_at: Option<StoreTime>,
    /// When it came online last; `null` when it never did.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub last_online_at: Option<StoreTime>,
    /// When it went offline last; `null` when it never did.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub last_offline_at: Option<StoreTime>,
    /// When it was deactivated last: tokens from before are void, also after it was activated again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub revoked_before: Option<StoreTime>,
    /// The tenure it is online under; absent while it is offline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenure: Option<TenureId>,
    /// Rises with every change but heartbeats.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub version: Version,
    /// With a read: `mirror`, or `ledger` while there is no mirror.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub source: Option<Source>,
    /// With a write: whether this call changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<bool>,
    /// With a write: whether the hot store has it already. If not, it follows; the ledger has it in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirrored: Option<bool>,
}

impl Provider {
    /// A row, and whether the tenure that it names is alive now.
    #[must_use]
    pub fn new(row: core::Provider, alive: bool) -> Self {
        let online = row.online.is_some();
        let alive = alive && online;
        Self {
            provider: row.provider,
            display_name: row.display_name,
            active: row.active,
            online,
            alive,
            reachable: alive && row.active,
            occupancy: row.occupancy,
            capacity: row.capacity,
            last_heartbeat_at: row.last_heartbeat_at,
            last_online_at: row.last_online_at,
            last_offline_at: row.last_offline_at,
            revoked_before: row.revoked_before,
            tenure: row.online,
            version: row.version,
            source: None,
            changed: None,
            mirrored: None,
        }
    }
}

impl From<Provider> for ProviderView {
    fn from(shown: Provider) -> Self {
        Self {
            reachable: shown.reachable,
            row: shown.into(),
        }
    }
}

impl From<ProviderView> for Provider {
    fn from(view: ProviderView) -> Self {
        // One that is deactivated is offline, so whoever is online and not reachable has not been heard of.
        Self::new(view.row, view.reachable)
    }
}

impl From<Provider> for core::Provider {
    fn from(shown: Provider) -> Self {
        Self {
            provider: shown.provider,
            display_name: shown.display_name,
            active: shown.active,
            online: shown.tenure,
            capacity: shown.capacity,
            occupancy: shown.occupancy,
            last_online_at: shown.last_online_at,
            last_offline_at: shown.last_offline_at,
            last_heartbeat_at: shown.last_heartbeat_at,
            revoked_before: shown.revoked_before,
            version: shown.version,
        }
    }
}

/// Providers, page by page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProvidersPage {
    /// The providers.
    pub providers: Vec<Provider>,
    /// Pass it as `after` to read on; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// `mirror`, or `ledger` while there is no mirror.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub source: Source,
}

/// Which providers to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct ProvidersQuery {
    /// Only those in this state: `online`, `available`, `busy`, `offline` or `deactivated`.
    #[serde(
        default,
        deserialize_with = "super::super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub state: Option<String>,
    /// The `next` of the page before.
    #[serde(
        default,
        deserialize_with = "super::super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub after: Option<String>,
    /// At most this many, 1 to 1,000; 100 when not given.
    #[serde(
        default,
        deserialize_with = "super::super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<u32>,
}

impl ProvidersQuery {
    /// In which state, and which page.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000 or a state that does not exist.
    pub fn request(self) -> Result<(Option<ProviderState>, PageRequest)> {
        let state = self.state.as_deref().map(parse_state).transpose()?;
        let page = PageRequest::new(self.after, self.limit.unwrap_or(DEFAULT_PAGE))?;
        Ok((state, page))
    }
}

/// Reads a state of providers by its name.
///
/// # Errors
/// `Invalid`, with the names that there are.
pub fn parse_state(name: &str) -> Result<ProviderState> {
    ProviderState::parse(name).ok_or_else(|| {
        let names = ProviderState::ALL.map(ProviderState::as_str).join(", ");
        Error::invalid(format!(
            "{:?} is no state; there are {names}",
            super::super::shorten(name)
        ))
    })
}

/// A heartbeat that was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeartbeatAnswer {
    /// Whose.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub provider: ProviderId,
    /// Where: in the `mirror`, or in the `ledger` (within seconds) while there is no mirror.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub recorded: Source,
}
