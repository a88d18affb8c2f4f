//! The settings of a roster, which can change at run time.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, de};

use super::engagement::not_null;
use super::provider::{Version, check_capacity};
use crate::error::{Error, Result};
use crate::millis;

/// The minimum time without a heartbeat after which a provider is stale.
pub const MIN_STALE_AFTER: Duration = Duration::from_secs(1);
/// The maximum time without a heartbeat after which a provider is stale.
pub const MAX_STALE_AFTER: Duration = Duration::from_secs(86_400);
/// The maximum age of a snapshot of availability.
pub const MAX_SNAPSHOT: Duration = Duration::from_secs(10);

/// The settings of a roster, the same for every daemon. Durations are whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RosterSettings {
    /// The capacity of every provider without its own.
    pub default_capacity: u32,
    /// The time without a heartbeat after which a provider goes offline.
    #[serde(rename = "stale_after_ms", with = "millis::down")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub stale_after: Duration,
    /// Whether providers need heartbeats.
    pub require_heartbeat: bool,
    /// The maximum age of the shared count of available providers.
    #[serde(rename = "snapshot_ms", with = "millis::down")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub snapshot: Duration,
    /// Rises with every change; 0 if none were ever set.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub version: Version,
}

impl RosterSettings {
    /// The ttl of a provider's tenure.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        if self.require_heartbeat {
            self.stale_after
        } else {
            crate::roster::NEVER_STALE
        }
    }
}

impl Default for RosterSettings {
    fn default() -> Self {
        Self {
            default_capacity: 1,
            stale_after: Duration::from_secs(60),
            require_heartbeat: true,
            snapshot: MAX_SNAPSHOT,
            version: Version::NONE,
        }
    }
}

/// A change of settings. Omitted fields stay. Every daemon applies it within a second. Durations are truncated to whole
/// milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = PatchRosterRequest))]
pub struct SettingsPatch {
    /// The capacity of every provider without its own; at most 100,000.
    #[serde(default, deserialize_with = "not_null", skip_serializing_if = "Option::is_none")]
    pub default_capacity: Option<u32>,
    /// The time without a heartbeat after which a provider goes offline; 1,000 to 86,400,000.
    #[serde(
        rename = "stale_after_ms",
        default,
        serialize_with = "millis::down::serialize",
        deserialize_with = "not_null_millis",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, minimum = 1_000))]
    pub stale_after: Option<Duration>,
    /// Whether providers need heartbeats.
    #[serde(default, deserialize_with = "not_null", skip_serializing_if = "Option::is_none")]
    pub require_heartbeat: Option<bool>,
    /// The maximum age of the shared count of available providers; at most 10,000.
    #[serde(
        rename = "snapshot_ms",
        default,
        serialize_with = "millis::down::serialize",
        deserialize_with = "not_null_millis",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub snapshot: Option<Duration>,
}

fn not_null_millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let span: Option<Duration> = millis::down::deserialize(deserializer)?;
    span.map(Some)
        .ok_or_else(|| de::Error::custom("null is no duration; leave the field out to keep its value"))
}

impl SettingsPatch {
    /// Rejects a value out of range.
    ///
    /// # Errors
    /// `Invalid`, with the limit.
    pub fn check(&self) -> Result<()> {
        if let Some(capacity) = self.default_capacity {
            check_capacity("default capacity", capacity)?;
        }
        if let Some(after) = self.stale_after
            && !(MIN_STALE_AFTER..=MAX_STALE_AFTER).contains(&after)
        {
            return Err(Error::invalid(format!(
                "stale after {after:?} is out of range: use 1s to 24h"
            )));
        }
        match self.snapshot {
            Some(age) if age > MAX_SNAPSHOT => Err(Error::invalid(format!(
                "a snapshot of {age:?} is out of range: use at most 10s"
            ))),
            _ => Ok(()),
        }
    }

    /// The settings with this change and the same version.
    #[must_use]
    pub fn applied_to(&self, settings: RosterSettings) -> RosterSettings {
        let whole = |duration| Duration::from_millis(millis::down(duration));
        RosterSettings {
            default_capacity: self.default_capacity.unwrap_or(settings.default_capacity),
            stale_after: self.stale_after.map_or(settings.stale_after, whole),
            require_heartbeat: self.require_heartbeat.unwrap_or(settings.require_heartbeat),
            snapshot: self.snapshot.map_or(settings.snapshot, whole),
            version: settings.version,
        }
    }
}
