//! Providers: create, remove, online and offline, activate and deactivate.

use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{ProviderId, TenureId};
use tenure_core::ledger::{OnlineOutcome, Provider, ProviderChange, ProviderSpec, RemoveOutcome};
use tenure_core::membership::EndBy;
use tenure_core::roster::{EnsuredTenure, MirrorEntry};

use super::answer::{Online, Removal, Written};
use super::handle::Roster;

impl Roster {
    /// Creates or changes a provider. A new one is active and offline. O(1).
    ///
    /// # Errors
    /// `Invalid` for an exceeded limit: nothing changed.
    pub async fn put_provider(&self, provider: &ProviderId, spec: &ProviderSpec) -> Result<Written<Provider>> {
        self.touch();
        let ledger = self.inner.ledger();
        let change = ledger.put_provider(self.name(), provider, spec).await?;
        Ok(self.written(change).await)
    }

    /// Removes a provider that is offline and has no open engagement. O(1).
    ///
    /// # Errors
    /// None of its own.
    pub async fn remove_provider(&self, provider: &ProviderId) -> Result<Removal> {
        self.touch();
        let ledger = self.inner.ledger();
        let removed = ledger.remove_provider(self.name(), provider).await?;
        Ok(match removed {
            RemoveOutcome::Removed(version) => {
                let provider = provider.clone();
                let mirrored = self.mirror_entries(vec![MirrorEntry::Gone { provider, version }]).await;
                Removal::Removed { mirrored }
            }
            RemoveOutcome::Absent => Removal::Absent,
            RemoveOutcome::Busy(row) => Removal::Busy(row),
        })
    }

    /// Takes a provider online; this is also its first heartbeat, in the same step. While the hot store is unreachable
    /// the provider is online in the ledger, and gets its tenure when the store returns. O(1).
    ///
    /// # Errors
    /// `NotFound`: nothing changed.
    pub async fn online(&self, provider: &ProviderId) -> Result<Online> {
        self.touch();
        if !self.state.mirror().is_known() && self.inner.row_now(&self.state, provider).await?.is_none() {
            // A mistyped name must not create a group in the hot store.
            return Err(no_provider(provider));
        }
        let seated = self.seat(provider).await;
        let tenure = seated.as_ref().map(|seated| &seated.tenure);
        let ledger = self.inner.ledger();
        let outcome = ledger.go_online(self.name(), provider, tenure).await;
        match outcome {
            Ok(OnlineOutcome::Online(change)) => {
                if seated.is_none() {
                    // Also if it was online before: going online is a heartbeat.
                    self.state.note(provider, self.inner.clock().mono());
                }
                Ok(Online::Done(self.written(change).await))
            }
            // Another process took it online under a later tenure, or the ledger did while the hot store was
            // unreachable.
            Ok(OnlineOutcome::Stale(row)) => {
                let mirrored = self.mirror_rows([row.clone()]).await;
                Ok(Online::Done(Written {
                    value: row,
                    changed: false,
                    mirrored,
                }))
            }
            Ok(OnlineOutcome::Deactivated(row)) => {
                self.unseat(seated.as_ref()).await;
                Ok(Online::Deactivated(row))
            }
            Err(error) => {
                self.unseat(seated.as_ref().filter(|seated| seated.new)).await;
                Err(error)
            }
        }
    }

    /// Takes a provider offline at its own request. O(1).
    ///
    /// # Errors
    /// `NotFound`: nothing changed.
    pub async fn offline(&self, provider: &ProviderId) -> Result<Written<Provider>> {
        self.touch();
        let ledger = self.inner.ledger();
        let change = ledger.go_offline(self.name(), provider, None).await?;
        self.end_after(change, EndBy::Leave).await
    }

    /// Allows a provider to take work again. It stays offline until it goes online itself. O(1).
    ///
    /// # Errors
    /// `NotFound`: nothing changed.
    pub async fn activate(&self, provider: &ProviderId) -> Result<Written<Provider>> {
        self.touch();
        let ledger = self.inner.ledger();
        let change = ledger.activate(self.name(), provider).await?;
        Ok(self.written(change).await)
    }

    /// Forbids a provider to take work, takes it offline, and revokes the credentials issued before. In effect from the
    /// moment this returns. O(1).
    ///
    /// # Errors
    /// `NotFound`: nothing changed.
    pub async fn deactivate(&self, provider: &ProviderId) -> Result<Written<Provider>> {
        self.touch();
        let ledger = self.inner.ledger();
        let change = ledger.deactivate(self.name(), provider).await?;
        self.end_after(change, EndBy::Expel).await
    }

    /// The tenure to go online under; `None` while the hot store is unreachable.
    async fn seat(&self, provider: &ProviderId) -> Option<EnsuredTenure> {
        let mirror = self.state.mirror();
        if mirror.is_away() {
            return None;
        }
        let settings = self.inner.settings_of(&self.state).await;
        let seated = mirror.seat(std::slice::from_ref(provider), settings.ttl(), true).await;
        seated.ok()?.into_iter().next()
    }

    /// Ends a tenure that the ledger did not follow. If the call fails, the tenure lapses.
    async fn unseat(&self, seated: Option<&EnsuredTenure>) {
        if let Some(seated) = seated {
            self.state.mirror().end(&seated.tenure, EndBy::Leave).await;
        }
    }

    /// Ends the tenure that a change has detached from its row, after the mirror has the row. So the tenure ends for
    /// the right reason, and the ledger has nothing to follow.
    async fn end_after(&self, change: ProviderChange, by: EndBy) -> Result<Written<Provider>> {
        let ended: Option<TenureId> = change.was_online.clone().filter(|_| change.provider.online.is_none());
        let written = self.written(change).await;
        if let Some(tenure) = ended {
            self.state.mirror().end(&tenure, by).await;
        }
        Ok(written)
    }

    async fn written(&self, change: ProviderChange) -> Written<Provider> {
        // The row is in the ledger, and so is its roster.
        self.state.mirror().set_known(true);
        let mirrored = self.mirror_rows([change.provider.clone()]).await;
        Written {
            value: change.provider,
            changed: change.changed,
            mirrored,
        }
    }
}

pub(super) fn no_provider(provider: &ProviderId) -> Error {
    Error::new(ErrorKind::NotFound, format!("the roster has no provider {provider}"))
}
