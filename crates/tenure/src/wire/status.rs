//! The daemon about itself: loops, store, groups, readiness.

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
    /// Now.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub now: StoreTime,
}

/// The names of groups, page by page, in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GroupsPage {
    /// The groups.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub groups: Vec<Group>,
    /// Pass it as `after` to read on; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What the doctor found out about the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Findings {
    /// One each.
    pub findings: Vec<Finding>,
}

/// Whether the daemon can do its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Readiness {
    /// Whether it can.
    pub ready: bool,
    /// Why not; empty when it can.
    pub reasons: Vec<String>,
    /// What works, but not as it should: a roster that is seeding answers from the ledger, a node of the store is away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A background loop of the daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoopState {
    /// Which.
    pub name: String,
    /// When it last did what it is for, by the daemon's clock; absent when it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub last_success: Option<StoreTime>,
    /// How long that is ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_age_ms: Option<u64>,
    /// How often it ran.
    pub runs: u64,
    /// How often it failed.
    pub failures: u64,
    /// How often it panicked and was started again.
    pub panics: u64,
    /// How often it failed or panicked since it last did what it is for: 0 when it is well.
    #[serde(default)]
    pub bad_in_a_row: u32,
    /// What went wrong last. Kept when it is well again, for whoever comes to look later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The store behind the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StoreState {
    /// Where it is, without secrets.
    pub place: String,
    /// Whether it answered lately.
    pub up: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The state of a group as it was seen last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Watched {
    /// What was seen.
    #[serde(flatten)]
    pub state: GroupState,
    /// How long ago. Grows while the store is away.
    pub age_ms: u64,
    /// The registries whose claims went through this daemon, at most 100, in the order of their names. There may be others:
    /// a store knows claims and not which registries there are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub registries: Vec<RegistryName>,
}

/// How the daemon finds out who is calling.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AccessState {
    /// How many tokens are known; absent when none is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Why what is in the file of tokens now is not used, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_trouble: Option<String>,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// Whether clients have to show a certificate.
    pub client_certificates: bool,
    /// Why the certificate that is in its file now is not used, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_trouble: Option<String>,
    /// What this caller may do: `read`, `beat`, `write`, `operate`. All of it when no token is asked for.
    #[serde(default)]
    pub scopes: Vec<String>,
}

/// `GET /v1/status`. Answered also while the store is away, from what was seen last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServerStatus {
    /// The daemon's version.
    pub version: String,
    /// How long it runs.
    pub uptime_ms: u64,
    /// The store.
    pub store: StoreState,
    /// The background loops.
    pub loops: Vec<LoopState>,
    /// The groups, at most 1,000, in the order of their names.
    pub groups: Vec<Watched>,
    /// How many groups there are, also those that are not listed.
    pub groups_total: u64,
    /// The rosters; absent when the daemon has no ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rosters: Option<RostersState>,
    /// How it finds out who is calling.
    #[serde(default)]
    pub access: AccessState,
    /// How long ago the groups were last listed; absent when they never were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups_age_ms: Option<u64>,
    /// Event streams that are open.
    pub streams: u64,
    /// Requests that are being answered.
    pub requests: u64,
}
