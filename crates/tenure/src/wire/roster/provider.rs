//! Providers on the wire.

use serde::{Deserialize, Serialize};
use tenure_core::error::{Error, Result};
use tenure_core::id::ProviderId;
use tenure_core::ledger::{self as core, ProviderState};
use tenure_core::store::{DEFAULT_PAGE, PageRequest};

use crate::roster::{ProviderView, Source, Sourced};

/// A provider: its row in the ledger, and whether it is present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Provider {
    /// Its row in the ledger.
    #[serde(flatten)]
    pub row: core::Provider,
    /// Whether it is online. From the mirror: under a tenure that is alive, as `stats` counts it.
    pub online: bool,
    /// Whether the tenure it is online under is alive: it sent a heartbeat recently.
    pub alive: bool,
    /// Whether it can be called: online, active and alive.
    pub reachable: bool,
}

impl Provider {
    /// A row, and whether its tenure is alive.
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
        // A deactivated provider is offline, so an online one that is not reachable sent no recent heartbeat.
        Self::new(view.row, view.reachable)
    }
}

/// A page of providers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProvidersPage {
    /// The providers.
    pub providers: Vec<Sourced<Provider>>,
    /// The cursor for the next page, passed as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// `mirror`, or `ledger` while there is no mirror.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub source: Source,
}

/// Query of the provider listing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct ProvidersQuery {
    /// Only providers in this state: `online`, `available`, `busy`, `offline` or `deactivated`.
    #[serde(
        default,
        deserialize_with = "super::super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub state: Option<String>,
    /// The `next` of the previous page.
    #[serde(
        default,
        deserialize_with = "super::super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub after: Option<String>,
    /// Page size, 1 to 1,000; default 100.
    #[serde(
        default,
        deserialize_with = "super::super::if_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub limit: Option<u32>,
}

impl ProvidersQuery {
    /// Converts to a state and a page request.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000 or an unknown state.
    pub fn request(self) -> Result<(Option<ProviderState>, PageRequest)> {
        let state = self.state.as_deref().map(parse_state).transpose()?;
        let page = PageRequest::new(self.after, self.limit.unwrap_or(DEFAULT_PAGE))?;
        Ok((state, page))
    }
}

/// Parses a provider state.
///
/// # Errors
/// `Invalid`, listing the states.
pub fn parse_state(name: &str) -> Result<ProviderState> {
    ProviderState::parse(name).ok_or_else(|| {
        let names = ProviderState::ALL.map(ProviderState::as_str).join(", ");
        Error::invalid(format!(
            "unknown state {:?}; there are {names}",
            super::super::shorten(name)
        ))
    })
}

/// A recorded heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeartbeatAnswer {
    /// The provider.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub provider: ProviderId,
    /// Where it was recorded: in the `mirror`, or in the `ledger` (within seconds) while there is no mirror.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub recorded: Source,
}
