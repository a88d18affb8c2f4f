//! What a roster is told at run time, on the wire.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::error::Result;
use tenure_core::ledger::{self as core, SettingsPatch, Version};

use super::super::ms;

/// The settings of a roster, the same for every daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RosterSettings {
    /// The capacity of every provider that has none of its own.
    pub default_capacity: u32,
    /// After how long without a heartbeat a provider goes offline.
    pub stale_after_ms: u64,
    /// Whether it does at all.
    pub require_heartbeat: bool,
    /// How long the shared answer to "is anyone available?" may be believed.
    pub snapshot_ms: u64,
    /// Rises with every change; 0 while nothing was ever set.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub version: Version,
}

impl From<core::RosterSettings> for RosterSettings {
    fn from(settings: core::RosterSettings) -> Self {
        Self {
            default_capacity: settings.default_capacity,
            stale_after_ms: ms(settings.stale_after),
            require_heartbeat: settings.require_heartbeat,
            snapshot_ms: ms(settings.snapshot),
            version: settings.version,
        }
    }
}

impl From<RosterSettings> for core::RosterSettings {
    fn from(settings: RosterSettings) -> Self {
        Self {
            default_capacity: settings.default_capacity,
            stale_after: Duration::from_millis(settings.stale_after_ms),
            require_heartbeat: settings.require_heartbeat,
            snapshot: Duration::from_millis(settings.snapshot_ms),
            version: settings.version,
        }
    }
}

/// What a change of settings did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = RosterSettingsAnswer))]
pub struct SettingsAnswer {
    /// The settings now.
    #[serde(flatten)]
    pub settings: RosterSettings,
    /// Whether this call changed them.
    pub changed: bool,
    /// Whether the hot store has them already. If not, they follow; the ledger has them in any case.
    pub mirrored: bool,
}

/// `PATCH /v1/rosters/{r}`. What is not named stays; every daemon obeys within a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PatchRosterRequest {
    /// The capacity of every provider that has none of its own; at most 100,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_capacity: Option<u32>,
    /// After how long without a heartbeat a provider goes offline; 1,000 to 86,400,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_after_ms: Option<u64>,
    /// Whether it does at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_heartbeat: Option<bool>,
    /// How long the shared answer to "is anyone available?" may be believed; at most 10,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_ms: Option<u64>,
}

impl PatchRosterRequest {
    /// The change it asks for.
    ///
    /// # Errors
    /// `Invalid`, with the limit.
    pub fn patch(self) -> Result<SettingsPatch> {
        let patch = SettingsPatch {
            default_capacity: self.default_capacity,
            stale_after: self.stale_after_ms.map(Duration::from_millis),
            require_heartbeat: self.require_heartbeat,
            snapshot: self.snapshot_ms.map(Duration::from_millis),
        };
        patch.check()?;
        Ok(patch)
    }
}

impl From<SettingsPatch> for PatchRosterRequest {
    fn from(patch: SettingsPatch) -> Self {
        Self {
            default_capacity: patch.default_capacity,
            stale_after_ms: patch.stale_after.map(ms),
            require_heartbeat: patch.require_heartbeat,
            snapshot_ms: patch.snapshot.map(ms),
        }
    }
}
