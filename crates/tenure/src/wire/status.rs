//! The status of a daemon: loops, store, groups, readiness.

use serde::{Deserialize, Serialize};
use tenure_core::id::{Group, RegistryName};
use tenure_core::store::Finding;
use tenure_core::time::StoreTime;

use super::roster::RostersState;
use super::sweep::GroupState;

/// The store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Now {
    /// The current time.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub now: StoreTime,
}

/// A page of group names, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupsPage {
    /// The groups.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub groups: Vec<Group>,
    /// The cursor for the next page, passed as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The doctor's findings about the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Findings {
    /// The findings.
    pub findings: Vec<Finding>,
}

/// Whether the daemon is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Readiness {
    /// Whether it is ready.
    pub ready: bool,
    /// Why it is not ready; empty if it is.
    pub reasons: Vec<String>,
    /// Degraded parts: a seeding roster answers from the ledger, or a node of the store is down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A background loop of the daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoopState {
    /// The name of the loop.
    pub name: String,
    /// Time of the last success on the daemon's clock; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub last_success: Option<StoreTime>,
    /// Time since the last success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_age_ms: Option<u64>,
    /// Number of turns.
    pub runs: u64,
    /// Number of failures.
    pub failures: u64,
    /// Number of panics, each followed by a restart.
    pub panics: u64,
    /// Failures and panics since the last success; 0 when healthy.
    #[serde(default)]
    pub bad_in_a_row: u32,
    /// The last error. It is kept after a recovery, for later inspection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The store behind the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StoreState {
    /// Its location, without secrets.
    pub place: String,
    /// Whether it answered recently.
    pub up: bool,
    /// Why it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Settings of its server that endanger what it keeps, for example that it evicts keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The last known state of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Watched {
    /// The state.
    #[serde(flatten)]
    pub state: GroupState,
    /// Its age, which grows while the store is down.
    pub age_ms: u64,
    /// The registries whose claims went through this daemon, at most 100, sorted. The list may be incomplete, because a
    /// store has no list of registries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub registries: Vec<RegistryName>,
}

/// The authentication of the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AccessState {
    /// Number of known tokens; absent if no token is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Why the current content of the token file is not used, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_trouble: Option<String>,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// Whether clients must present a certificate.
    pub client_certificates: bool,
    /// Why the certificate now in its file is not used, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_trouble: Option<String>,
    /// The scopes of this caller: `read`, `beat`, `write`, `operate`. All of them if no token is required.
    #[serde(default)]
    pub scopes: Vec<String>,
}

/// `GET /v1/status`. Also available while the store is down, from the last known state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServerStatus {
    /// The daemon's version.
    pub version: String,
    /// Time since the daemon started.
    pub uptime_ms: u64,
    /// The store.
    pub store: StoreState,
    /// The background loops.
    pub loops: Vec<LoopState>,
    /// The groups, at most 1,000, sorted by name.
    pub groups: Vec<Watched>,
    /// Total number of groups, including those not listed.
    pub groups_total: u64,
    /// The rosters; absent if the daemon has no ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rosters: Option<RostersState>,
    /// Authentication.
    #[serde(default)]
    pub access: AccessState,
    /// Time since the groups were last listed; absent before the first listing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups_age_ms: Option<u64>,
    /// Open event streams.
    pub streams: u64,
    /// Requests in progress.
    pub requests: u64,
}
