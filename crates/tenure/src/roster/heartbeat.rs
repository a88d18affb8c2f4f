//! Heartbeats, and whether a provider may act at all.

use tenure_core::error::Result;
use tenure_core::id::ProviderId;
use tenure_core::time::StoreTime;

use super::answer::{Admission, Heard};
use super::handle::Roster;

impl Roster {
    /// A provider was heard of. `issued_at` is when what it showed to be let in was issued. While the mirror is believed
    /// this is one step of the hot store, shared with other heartbeats, and no statement of the ledger; otherwise one read
    /// of the ledger, and a write for many every few seconds. Never takes online, never activates. O(1).
    ///
    /// # Errors
    /// None of its own.
    pub async fn heartbeat(&self, provider: &ProviderId, issued_at: Option<StoreTime>) -> Result<Heard> {
        let _ = (provider, issued_at);
        self.soon()
    }

    /// Whether a provider may act on what it showed, which was issued then: to be asked before everything that a provider
    /// does in its own name, but for a heartbeat, which asks by itself. Changes nothing. O(1).
    ///
    /// # Errors
    /// None of its own.
    pub async fn admit(&self, provider: &ProviderId, issued_at: Option<StoreTime>) -> Result<Admission> {
        let _ = (provider, issued_at);
        self.soon()
    }
}
