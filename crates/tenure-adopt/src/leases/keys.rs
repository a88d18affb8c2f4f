//! The operations on old keys.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::Result;
use tenure_core::id::LeaseName;

/// The result of acquiring an old key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakeOutcome {
    /// The key is ours for a full ttl from now on.
    Ours,
    /// Another instance holds it.
    Held {
        /// Its value, which identifies the holder. Empty if the key is not a string.
        by: String,
        /// When it expires unless renewed; `None`: never.
        free_in: Option<Duration>,
    },
}

/// A store of old keys. Each call takes at most 200 targets, each with the value for its key, and returns one result
/// per target in this order. All calls are bounded and idempotent.
#[async_trait]
pub trait OldKeys: Send + Sync + fmt::Debug + 'static {
    /// Acquires the keys that are free or have our value.
    ///
    /// # Errors
    /// The outcome of the error says whether a key may have been acquired.
    async fn take(&self, wanted: &[(LeaseName, String)]) -> Result<Vec<TakeOutcome>>;

    /// Renews the keys that still have our value. `false` for the others.
    ///
    /// # Errors
    /// The state of all keys is unknown.
    async fn renew(&self, held: &[(LeaseName, String)]) -> Result<Vec<bool>>;

    /// Deletes the keys that still have our value. `false` for the others.
    ///
    /// # Errors
    /// The state of all keys is unknown.
    async fn release(&self, held: &[(LeaseName, String)]) -> Result<Vec<bool>>;
}
