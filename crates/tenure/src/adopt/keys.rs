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
        /// Its value.
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

/// The most targets in one call.
pub(super) const BATCH: usize = 200;

#[cfg(feature = "valkey")]
#[async_trait]
impl OldKeys for tenure_valkey::adopt::OldKeys {
    async fn take(&self, wanted: &[(LeaseName, String)]) -> Result<Vec<Taken>> {
        use tenure_valkey::adopt::{TakenOld, text};
        let taken = self.take(wanted).await?.into_iter().map(|taken| match taken {
            TakenOld::Ours => Taken::Ours,
            TakenOld::Held { by, free_in } => Taken::Held { by: text(&by), free_in },
        });
        Ok(taken.collect())
    }

    async fn renew(&self, held: &[(LeaseName, String)]) -> Result<Vec<bool>> {
        self.renew(held).await
    }

    async fn release(&self, held: &[(LeaseName, String)]) -> Result<Vec<bool>> {
        self.release(held).await
    }
}
