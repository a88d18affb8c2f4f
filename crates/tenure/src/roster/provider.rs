//! Providers: written down, removed, online and offline, activated and deactivated.

use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{ProviderId, TenureId};
use tenure_core::ledger::{OnlineOutcome, Provider, ProviderChange, ProviderSpec, RemoveOutcome};
use tenure_core::membership::EndBy;
use tenure_core::roster::{Entry, Seated};

use super::answer::{Online, Removal, Written};
use super::handle::Roster;

impl Roster {
    /// Writes a provider down, or changes what is written. A new one is active and offline. O(1).
    ///
    /// # Errors
    /// `Invalid` for what breaks a limit: nothing changed.
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
                let mirrored = self.spread_entries(vec![Entry::Gone { provider, version }]).await;
                Removal::Removed { mirrored }
            }
            RemoveOutcome::Absent => Removal::Absent,
            RemoveOutcome::Busy(row) => Removal::Busy(row),
        })
    }

    /// Takes a provider online, and counts as its first heartbeat in the same step. While the hot store is away it is
    /// online in the ledger, and gets its tenure when the store is back. O(1).
    ///
    /// # Errors
    /// `NotFound`: nothing changed.
    pub async fn online(&self, provider: &ProviderId) -> Result<Online> {
        self.touch();
        if !self.one.line().is_known() && self.inner.row_now(&self.one, provider).await?.is_none() {
            // Whoever mistypes a name must not make a group of it in the hot store.
            return Err(no_provider(provider));
        }
        let seated = self.seat(provider).await;
        let tenure = seated.as_ref().map(|seated| &seated.tenure);
        let ledger = self.inner.ledger();
        let outcome = ledger.go_online(self.name(), provider, tenure).await;
        match outcome {
            Ok(OnlineOutcome::Online(change)) => {
                if seated.is_none() {
                    // Also for one who was online before: it was heard of now.
                    self.one.note(provider, self.inner.clock().mono());
                }
                Ok(Online::Done(self.written(change).await))
            }
            // Somebody else took it online under a later tenure, or the ledger did while the hot store was away.
            Ok(OnlineOutcome::Stale(row)) => {
                let mirrored = self.spread([row.clone()]).await;
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

    /// Takes a provider offline because it asked. O(1).
    ///
    /// # Errors
    /// `NotFound`: nothing changed.
    pub async fn offline(&self, provider: &ProviderId) -> Result<Written<Provider>> {
        self.touch();
        let ledger = self.inner.ledger();
        let change = ledger.go_offline(self.name(), provider, None).await?;
        self.end_after(change, EndBy::Leave).await
    }

    /// Lets a provider take work again; it stays offline until it comes by itself. O(1).
    ///
    /// # Errors
    /// `NotFound`: nothing changed.
    pub async fn activate(&self, provider: &ProviderId) -> Result<Written<Provider>> {
        self.touch();
        let ledger = self.inner.ledger();
        let change = ledger.activate(self.name(), provider).await?;
        Ok(self.written(change).await)
    }

    /// Forbids a provider to take work, takes it offline, and voids what it was given before. Refusals hold from the
    /// moment this is answered. O(1).
    ///
    /// # Errors
    /// `NotFound`: nothing changed.
    pub async fn deactivate(&self, provider: &ProviderId) -> Result<Written<Provider>> {
        self.touch();
        let ledger = self.inner.ledger();
        let change = ledger.deactivate(self.name(), provider).await?;
        self.end_after(change, EndBy::Expel).await
    }

    /// The tenure to go online under; `None` while the hot store is away.
    async fn seat(&self, provider: &ProviderId) -> Option<Seated> {
        let line = self.one.line();
        if line.is_away() {
            return None;
        }
        let settings = self.inner.settings_of(&self.one).await;
        let seated = line.seat(std::slice::from_ref(provider), settings.ttl(), true).await;
        seated.ok()?.into_iter().next()
    }

    /// Takes back a tenure that the ledger did not follow. One that is not reached lapses.
    async fn unseat(&self, seated: Option<&Seated>) {
        if let Some(seated) = seated {
            self.one.line().end(&seated.tenure, EndBy::Leave).await;
        }
    }

    /// Ends the tenure that a change has left without a row, once the mirror has the row: so it ends as what it is, and not
    /// as one that the ledger has to follow.
    async fn end_after(&self, change: ProviderChange, by: EndBy) -> Result<Written<Provider>> {
        let ended: Option<TenureId> = change.was_online.clone().filter(|_| change.provider.online.is_none());
        let written = self.written(change).await;
        if let Some(tenure) = ended {
            self.one.line().end(&tenure, by).await;
        }
        Ok(written)
    }

    async fn written(&self, change: ProviderChange) -> Written<Provider> {
        // The ledger has it, and so its roster: another program may have written it a moment ago.
        self.one.line().set_known(true);
        let mirrored = self.spread([change.provider.clone()]).await;
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
