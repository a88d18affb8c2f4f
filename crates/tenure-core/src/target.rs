//! Targets: the work items of a fleet, when the store keeps their list.
//!
//! A target has a name, a pause flag and a weight. The lease of the same name says which member works on it.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::{Limits, send};
use crate::error::{Error, Result};
use crate::id::{Group, LeaseName};
use crate::store::{Backend, Call, Page, PageRequest};

/// The maximum weight of a target.
pub const MAX_WEIGHT: u32 = 1_000;

/// The settings of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetSpec {
    /// The target is paused: its holder releases the lease, and no node acquires it.
    pub paused: bool,
    /// Its share of a node's load, 1 to 1,000. Only bounded load uses it.
    pub weight: u32,
}

impl Default for TargetSpec {
    fn default() -> Self {
        Self {
            paused: false,
            weight: 1,
        }
    }
}

impl TargetSpec {
    /// Checks the specification.
    ///
    /// # Errors
    /// `Invalid` for a weight outside 1..=1000.
    pub fn check(self) -> Result<Self> {
        if self.weight == 0 || self.weight > MAX_WEIGHT {
            return Err(Error::invalid(format!(
                "the weight {} is out of range: use 1 to {MAX_WEIGHT}",
                self.weight
            )));
        }
        Ok(self)
    }
}

/// Whether the text of a field pauses its target. Only the empty text, `0`, `false`, `no` and `off` do not: an unclear
/// value pauses.
#[must_use]
pub fn text_pauses(text: &[u8]) -> bool {
    let text = text.trim_ascii().to_ascii_lowercase();
    !matches!(&text[..], b"" | b"0" | b"false" | b"no" | b"off")
}

/// The text of a field of a JSON object: a string as it is, `null` as the empty text, and anything else as JSON.
#[must_use]
pub fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// A target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The name, which is also that of its lease.
    pub target: LeaseName,
    /// Its settings.
    #[serde(flatten)]
    pub spec: TargetSpec,
}

/// [`TargetStore::put_target`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutTarget {
    /// The target.
    pub target: LeaseName,
    /// Its settings.
    pub spec: TargetSpec,
}

impl Limits for PutTarget {
    fn check(&self, _: Duration) -> Result<()> {
        self.spec.check().map(drop)
    }
}

/// [`TargetStore::remove_target`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveTarget {
    /// The target.
    pub target: LeaseName,
}

/// [`TargetStore::target`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetOf {
    /// The target.
    pub target: LeaseName,
}

/// [`TargetStore::targets`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Targets {
    /// The page.
    pub page: PageRequest,
}

/// The targets of a group.
#[async_trait]
pub trait TargetStore: Backend {
    /// Creates a target or replaces its settings. `true` if it is new. Writes one event if anything changed. O(1).
    ///
    /// # Errors
    /// `Invalid` for a weight outside the limits, `TooLate`, `Unavailable`. A retry is safe.
    async fn put_target(&self, group: &Group, target: &LeaseName, spec: TargetSpec, call: Call) -> Result<bool> {
        let target = target.clone();
        send(self, Some(group), PutTarget { target, spec }, call).await
    }

    /// Removes a target. Its holder keeps the lease until it notices. `false` if there was no such target. Writes one
    /// event. O(1).
    ///
    /// # Errors
    /// `TooLate`, `Unavailable`. A retry is safe.
    async fn remove_target(&self, group: &Group, target: &LeaseName, call: Call) -> Result<bool> {
        let target = target.clone();
        send(self, Some(group), RemoveTarget { target }, call).await
    }

    /// Reads a target. O(1).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn target(&self, group: &Group, target: &LeaseName) -> Result<Option<Target>> {
        let target = target.clone();
        send(self, Some(group), TargetOf { target }, Call::default()).await
    }

    /// Lists targets. One that is present throughout appears at least once. O(page).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, `Unavailable`.
    async fn targets(&self, group: &Group, page: &PageRequest) -> Result<Page<Target>> {
        let page = page.clone();
        send(self, Some(group), Targets { page }, Call::default()).await
    }
}

impl<S: Backend> TargetStore for S {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_field_pauses_unless_negative() {
        for active in ["", "0", "false", "False", "no", "OFF", " 0 "] {
            assert!(!text_pauses(active.as_bytes()), "{active:?}");
        }
        for paused in [&b"1"[..], b"true", b"yes", b"2026-01-01", b"paused", b"0.5", b"\xff"] {
            assert!(text_pauses(paused), "{paused:?}");
        }
    }

    #[test]
    fn json_values_pause_like_text() {
        for active in [json!(null), json!(false), json!(0), json!("off"), json!("")] {
            assert!(!text_pauses(text_of(&active).as_bytes()), "{active}");
        }
        for paused in [json!(true), json!(1), json!("yes"), json!({"since": 5}), json!([])] {
            assert!(text_pauses(text_of(&paused).as_bytes()), "{paused}");
        }
    }
}
