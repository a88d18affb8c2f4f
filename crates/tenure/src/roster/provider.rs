//! Providers: written down, removed, online and offline, activated and deactivated.

use tenure_core::error::Result;
use tenure_core::id::ProviderId;
use tenure_core::ledger::{Provider, ProviderSpec};

use super::answer::{Online, Removal, Written};
use super::handle::Roster;

impl Roster {
    /// Writes a provider down, or changes what is written. A new one is active and offline. O(1).
    ///
    /// # Errors
    /// `Invalid` for what breaks a limit: nothing changed.
    pub async fn put_provider(&self, provider: &ProviderId, spec: &ProviderSpec) -> Result<Written<Provider>> {
        let _ = (provider, spec);
        self.soon()
    }

    /// Removes a provider that is offline and has no open engagement. O(1).
    ///
    /// # Errors
    /// None of its own.
    pub async fn remove_provider(&self, provider: &ProviderId) -> Result<Removal> {
        let _ = provider;
        self.soon()
    }

    /// Takes a provider online, and counts as its first heartbeat in the same step. While the hot store is away it is
    /// online in the ledger, and gets its tenure when the store is back. O(1).
    ///
    /// # Errors
    /// `NotFound`: nothing changed.
    pub async fn online(&self, provider: &ProviderId) -> Result<Online> {
        let _ = provider;
        self.soon()
    }

    /// Takes a provider offline because it asked. O(1).
    ///
    /// # Errors
    /// `NotFound`: nothing changed.
    pub async fn offline(&self, provider: &ProviderId) -> Result<Written<Provider>> {
        let _ = provider;
        self.soon()
    }

    /// Lets a provider take work again; it stays offline until it comes by itself. O(1).
    ///
    /// # Errors
    /// `NotFound`: nothing changed.
    pub async fn activate(&self, provider: &ProviderId) -> Result<Written<Provider>> {
        let _ = provider;
        self.soon()
    }

    /// Forbids a provider to take work, takes it offline, and voids what it was given before. Refusals hold from the
    /// moment this is answered. O(1).
    ///
    /// # Errors
    /// `NotFound`: nothing changed.
    pub async fn deactivate(&self, provider: &ProviderId) -> Result<Written<Provider>> {
        let _ = provider;
        self.soon()
    }
}
