//! Providers on the wire.

use serde::{Deserialize, Serialize};
use tenure_core::error::{Error, Result};
use tenure_core::id::ProviderId;
use tenure_core::ledger::{self as core, ProviderState};
use tenure_core::store::{DEFAULT_PAGE, PageRequest};

use crate::roster::{ProviderView, Source, Sourced};

/// A provider: what the ledger says of it, and whether it is there now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Provider {
    /// What the ledger says of it.
    #[serde(flatten)]
    pub row: core::Provider,
    /// Whether it is online. From the mirror: under a tenure that is alive now, as `stats` counts it.
    pub online: bool,
    /// Whether the tenure it is online under is alive now: it was heard of lately.
    pub alive: bool,
    /// Whether it can be called: online, active and alive.
    pub reachable: bool,
}

impl Provider {
    /// A row, and whether the tenure that it names is alive now.
    #[must_use]
    pub fn new(row: core::Provider, alive: bool) -> Self {
        let online = row.online.is_some();
        let alive = alive && online;
        Self {
            online,
            alive,
            reachable: alive && row.active,
            row,
        }
    }
}

impl From<Provider> for ProviderView {
    fn from(shown: Provider) -> Self {
        Self {
            reachable: shown.reachable,
            row: shown.row,
        }
    }
}

impl From<ProviderView> for Provider {
    fn from(view: ProviderView) -> Self {
        // One that is deactivated is offline, so whoever is online and not reachable has not been heard of.
        Self::new(view.row, view.reachable)
    }
}

/// Providers, page by page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProvidersPage {
    /// The providers.
    pub providers: Vec<Sourced<Provider>>,
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
