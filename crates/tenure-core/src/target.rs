//! Targets: what a fleet places on its nodes, when the list of them is kept in the store.
//!
//! A target says only that it exists, whether it is paused, and how much it weighs. Who works on it is the lease of the
//! same name.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::{Limits, ask};
use crate::error::{Error, Result};
use crate::id::{Group, LeaseName};
use crate::store::{Backend, Call, Page, PageRequest};

/// The heaviest target.
pub const MAX_WEIGHT: u32 = 1_000;

/// How a target is to be treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetSpec {
    /// Nobody is to work on it for now; whoever holds its lease gives it up.
    pub paused: bool,
    /// Its share of a node's load, 1 to 1,000. Only bounded load looks at it.
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
    /// Takes a specification within the limits.
    ///
    /// # Errors
    /// `Invalid` for a weight outside 1..=1000.
    pub fn check(self) -> Result<Self> {
        if self.weight == 0 || self.weight > MAX_WEIGHT {
            return Err(Error::invalid(format!(
                "the weight {} is outside 1 to {MAX_WEIGHT}",
                self.weight
            )));
        }
        Ok(self)
    }
}

/// Whether the text of a field says that its target is paused. Only an empty text, `0`, `false`, `no` and `off` do not: a
/// target is not worked on when it is unclear whether it is paused.
#[must_use]
pub fn text_pauses(text: &[u8]) -> bool {
    let text = text.trim_ascii().to_ascii_lowercase();
    !matches!(&text[..], b"" | b"0" | b"false" | b"no" | b"off")
}

/// The text of a field of a JSON object: that of a string as it is, nothing for `null`, and JSON for everything else.
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
    /// Its name, and that of its lease.
    pub target: LeaseName,
    /// How it is to be treated.
    #[serde(flatten)]
    pub spec: TargetSpec,
}

/// [`TargetStore::put_target`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutTarget {
    /// Which.
    pub target: LeaseName,
    /// How it is to be treated.
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
    /// Which.
    pub target: LeaseName,
}

/// [`TargetStore::target`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetOf {
    /// Which.
    pub target: LeaseName,
}

/// [`TargetStore::targets`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Targets {
    /// Which page.
    pub page: PageRequest,
}

/// What there is to work on.
#[async_trait]
pub trait TargetStore: Backend {
    /// Makes a target, or replaces its specification. `true` when it is new. One event, when anything changed. O(1).
    ///
    /// # Errors
    /// `Invalid` for a weight outside the limits, `TooLate`, `Unavailable`. Doing it again is safe.
    async fn put_target(&self, group: &Group, target: &LeaseName, spec: TargetSpec, call: Call) -> Result<bool> {
        let target = target.clone();
        ask(self, Some(group), PutTarget { target, spec }, call).await
    }

    /// Removes a target; its lease stays with whoever holds it until they notice. `false` when there was none. One event.
    /// O(1).
    ///
    /// # Errors
    /// `TooLate`, `Unavailable`. Doing it again is safe.
    async fn remove_target(&self, group: &Group, target: &LeaseName, call: Call) -> Result<bool> {
        let target = target.clone();
        ask(self, Some(group), RemoveTarget { target }, call).await
    }

    /// Looks a target up. O(1).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn target(&self, group: &Group, target: &LeaseName) -> Result<Option<Target>> {
        let target = target.clone();
        ask(self, Some(group), TargetOf { target }, Call::default()).await
    }

    /// Lists targets. One that is there throughout is listed at least once. O(page).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, `Unavailable`.
    async fn targets(&self, group: &Group, page: &PageRequest) -> Result<Page<Target>> {
        let page = page.clone();
        ask(self, Some(group), Targets { page }, Call::default()).await
    }
}

impl<S: Backend> TargetStore for S {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_pauses_unless_it_says_no() {
        for active in ["", "0", "false", "False", "no", "OFF", " 0 "] {
            assert!(!text_pauses(active.as_bytes()), "{active:?}");
        }
        for paused in [&b"1"[..], b"true", b"yes", b"2026-01-01", b"paused", b"0.5", b"\xff"] {
            assert!(text_pauses(paused), "{paused:?}");
        }
    }

    #[test]
    fn values_of_json_pause_as_texts_do() {
        for active in [json!(null), json!(false), json!(0), json!("off"), json!("")] {
            assert!(!text_pauses(text_of(&active).as_bytes()), "{active}");
        }
        for paused in [json!(true), json!(1), json!("yes"), json!({"since": 5}), json!([])] {
            assert!(text_pauses(text_of(&paused).as_bytes()), "{paused}");
        }
    }
}
