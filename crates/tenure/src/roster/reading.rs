//! Who is there, and who has room.

use tenure_core::error::Result;
use tenure_core::id::ProviderId;
use tenure_core::ledger::{Candidate, LogEntry, ProviderState, RosterStats};
use tenure_core::store::{Page, PageRequest};

use super::answer::{Availability, ProviderView, Sourced};
use super::handle::Roster;

impl Roster {
    /// One provider; `None` when there is none of that name. O(1).
    ///
    /// # Errors
    /// None of its own.
    pub async fn provider(&self, provider: &ProviderId) -> Result<Sourced<Option<ProviderView>>> {
        let _ = provider;
        self.soon()
    }

    /// Whether a provider is online, active, and heard of lately. O(1).
    ///
    /// # Errors
    /// `NotFound` when there is no such provider.
    pub async fn is_reachable(&self, provider: &ProviderId) -> Result<Sourced<bool>> {
        let _ = provider;
        self.soon()
    }

    /// Who can take work, the least occupied first, then by name. O(limit).
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000.
    pub async fn available(&self, limit: u32) -> Result<Sourced<Vec<Candidate>>> {
        let _ = limit;
        self.soon()
    }

    /// How many can take work: the shared snapshot, at most as old as the roster's settings say. From the ledger it is one
    /// of this process, at most a second old. O(1), and once a second O(providers).
    ///
    /// # Errors
    /// None of its own.
    pub async fn availability(&self) -> Result<Sourced<Availability>> {
        self.soon()
    }

    /// How many are in which state. From the mirror `dirty` is as it was last counted. O(1) from the mirror, O(providers)
    /// from the ledger.
    ///
    /// # Errors
    /// None of its own.
    pub async fn stats(&self) -> Result<Sourced<RosterStats>> {
        self.soon()
    }

    /// Lists providers, all or those in one state, in the order of the source. A provider present throughout is listed at
    /// least once; a listing that goes on from the ledger after it began in the mirror begins anew. A page may be short, or
    /// empty, and still have a next one. O(page), and more for a rare state.
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, or a limit outside 1..=1000.
    pub async fn providers(
        &self,
        state: Option<ProviderState>,
        page: &PageRequest,
    ) -> Result<Sourced<Page<ProviderView>>> {
        let _ = (state, page);
        self.soon()
    }

    /// Reads the log forwards, of one provider or all. Always from the ledger. O(page).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, or a limit outside 1..=1000.
    pub async fn log(&self, provider: Option<&ProviderId>, page: &PageRequest) -> Result<Page<LogEntry>> {
        let _ = (provider, page);
        self.soon()
    }
}
