//! The steps over old keys, as the keeper needs them.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::Result;
use tenure_core::id::LeaseName;

/// What taking an old key came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It is ours, for a whole ttl from now on.
    Ours,
    /// Another holds it.
    Held {
        /// Its value, which names the holder. Empty when the key holds no text at all.
        by: String,
        /// When it expires if it is not renewed; `None` when it never does.
        free_in: Option<Duration>,
    },
}

/// Where old keys are kept. Each call is about at most 200 targets, each with the value to hold its
/// key by, and answers one by one in that order. Every call comes back after a bounded time. All may be done again.
#[async_trait]
pub trait OldKeys: Send + Sync + fmt::Debug + 'static {
    /// Takes the keys that nobody holds or that hold our value.
    ///
    /// # Errors
    /// The outcome tells whether anything may have been taken.
    async fn take(&self, wanted: &[(LeaseName, String)]) -> Result<Vec<Taken>>;

    /// Renews the keys that still hold our value. `false` for those that do not.
    ///
    /// # Errors
    /// Then nothing is known about any of them.
    async fn renew(&self, held: &[(LeaseName, String)]) -> Result<Vec<bool>>;

    /// Removes the keys that still hold our value. `false` for those that do not.
    ///
    /// # Errors
    /// Then nothing is known about any of them.
    async fn release(&self, held: &[(LeaseName, String)]) -> Result<Vec<bool>>;
}
