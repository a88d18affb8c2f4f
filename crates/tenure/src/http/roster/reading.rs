//! Provider reads and availability over HTTP.

use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::ProviderId;
use tenure_core::ledger::{Candidate, LogEntry, ProviderState, RosterStats};
use tenure_core::store::{Page, PageRequest};

use super::{RemoteRoster, if_found};
use crate::http::check_page;
use crate::roster::{Availability, ProviderView, Sourced};
use crate::wire::roster as wire;

impl RemoteRoster {
    /// As [`Roster::provider`](crate::roster::Roster::provider). A missing provider counts as the ledger's answer.
    ///
    /// # Errors
    /// None of its own.
    pub async fn provider(&self, provider: &ProviderId) -> Result<Sourced<Option<ProviderView>>> {
        let path = self.path(&["providers", provider.as_str()]);
        let found: Option<Sourced<wire::Provider>> = if_found(self.ask(self.store.read(&path)).await)?;
        Ok(match found {
            Some(shown) => shown.map(|shown| Some(shown.into())),
            None => Sourced::ledger(None),
        })
    }

    /// As [`Roster::is_reachable`](crate::roster::Roster::is_reachable).
    ///
    /// # Errors
    /// `NotFound` when there is no such provider.
    pub async fn is_reachable(&self, provider: &ProviderId) -> Result<Sourced<bool>> {
        let Sourced { value, source } = self.provider(provider).await?;
        let message = || format!("the roster {} has no provider {provider}", self.name);
        let view = value.ok_or_else(|| Error::new(ErrorKind::NotFound, message()))?;
        let value = view.reachable;
        Ok(Sourced { value, source })
    }

    /// As [`Roster::available`](crate::roster::Roster::available).
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000.
    pub async fn available(&self, limit: u32) -> Result<Sourced<Vec<Candidate>>> {
        let page = self.available_page(&PageRequest { after: None, limit }).await?;
        Ok(page.map(|page| page.items))
    }

    /// As [`Roster::available_page`](crate::roster::Roster::available_page).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, or a limit outside 1..=1000.
    pub async fn available_page(&self, page: &PageRequest) -> Result<Sourced<Page<Candidate>>> {
        let limit = check_page(page)?.to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(page.after.as_deref().map(|after| ("after", after)));
        let request = self.store.read(&self.path(&["available"])).query(&query);
        let shown: wire::AvailableAnswer = self.ask(request).await?.json()?;
        let value = Page {
            items: shown.providers,
            next: shown.next,
        };
        let source = shown.source;
        Ok(Sourced { value, source })
    }

    /// As [`Roster::availability`](crate::roster::Roster::availability).
    ///
    /// # Errors
    /// None of its own.
    pub async fn availability(&self) -> Result<Sourced<Availability>> {
        let request = self.store.read(&self.path(&["availability"]));
        let shown: wire::AvailabilityAnswer = self.ask(request).await?.json()?;
        Ok(shown.counted)
    }

    /// As [`Roster::stats`](crate::roster::Roster::stats), with `dirty` always 0.
    ///
    /// # Errors
    /// None of its own.
    pub async fn stats(&self) -> Result<Sourced<RosterStats>> {
        self.ask(self.store.read(&self.path(&["stats"]))).await?.json()
    }

    /// As [`Roster::providers`](crate::roster::Roster::providers).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, or a limit outside 1..=1000.
    pub async fn providers(
        &self,
        state: Option<ProviderState>,
        page: &PageRequest,
    ) -> Result<Sourced<Page<ProviderView>>> {
        let limit = check_page(page)?.to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(page.after.as_deref().map(|after| ("after", after)));
        query.extend(state.map(|state| ("state", state.as_str())));
        let request = self.store.read(&self.path(&["providers"])).query(&query);
        let shown: wire::ProvidersPage = self.ask(request).await?.json()?;
        let items = shown.providers.into_iter().map(|shown| shown.value.into());
        let value = Page {
            items: items.collect(),
            next: shown.next,
        };
        let source = shown.source;
        Ok(Sourced { value, source })
    }

    /// As [`Roster::log`](crate::roster::Roster::log).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, or a limit outside 1..=1000.
    pub async fn log(&self, provider: Option<&ProviderId>, page: &PageRequest) -> Result<Page<LogEntry>> {
        let limit = check_page(page)?.to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(page.after.as_deref().map(|after| ("after", after)));
        query.extend(provider.map(|provider| ("provider", provider.as_str())));
        let request = self.store.read(&self.path(&["log"])).query(&query);
        let shown: wire::LogPage = self.ask(request).await?.json()?;
        Ok(Page {
            items: shown.entries,
            next: shown.next,
        })
    }
}
