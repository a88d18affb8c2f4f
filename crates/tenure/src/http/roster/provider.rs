//! Providers over HTTP.

use reqwest::Method;
use tenure_core::error::{ErrorKind, Result};
use tenure_core::id::ProviderId;
use tenure_core::ledger::{Provider, ProviderSpec};

use super::{RemoteRoster, required};
use crate::http::request::DaemonResponse;
use crate::roster::{HeartbeatOutcome, Online, Removal, Written};
use crate::wire::roster as wire;
use crate::wire::{Code, MIRRORED, Problem};

impl RemoteRoster {
    /// As [`Roster::put_provider`](crate::roster::Roster::put_provider).
    ///
    /// # Errors
    /// `Invalid` for a value outside its limits, with nothing changed.
    pub async fn put_provider(&self, provider: &ProviderId, spec: &ProviderSpec) -> Result<Written<Provider>> {
        let path = self.path(&["providers", provider.as_str()]);
        let answer = self.ask(self.store.commit(Method::PUT, &path).json(spec)).await?;
        changed(&answer)
    }

    /// As [`Roster::remove_provider`](crate::roster::Roster::remove_provider).
    ///
    /// # Errors
    /// None of its own.
    pub async fn remove_provider(&self, provider: &ProviderId) -> Result<Removal> {
        let path = self.path(&["providers", provider.as_str()]);
        let request = self.store.commit(Method::DELETE, &path).expects(&[Code::ProviderBusy]);
        match self.ask(request).await {
            Ok(answer) => match &answer.problem {
                Some((_, problem)) => Ok(Removal::Busy(required(problem.provider.as_deref())?.row)),
                None => {
                    let mirrored = answer.headers.get(MIRRORED).is_some_and(|mirrored| mirrored == "true");
                    Ok(Removal::Removed { mirrored })
                }
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Removal::Absent),
            Err(error) => Err(error),
        }
    }

    /// As [`Roster::online`](crate::roster::Roster::online).
    ///
    /// # Errors
    /// `NotFound`, with nothing changed.
    pub async fn online(&self, provider: &ProviderId) -> Result<Online> {
        let path = self.path(&["providers", provider.as_str(), "online"]);
        let request = self
            .store
            .commit(Method::POST, &path)
            .expects(&[Code::ProviderDeactivated]);
        let answer = self.ask(request).await?;
        match &answer.problem {
            Some((_, problem)) => match &problem.provider {
                Some(shown) => Ok(Online::Deactivated(shown.row.clone())),
                // A caller with a token is rejected before its row is read.
                None => match self.provider(provider).await?.value {
                    Some(view) => Ok(Online::Deactivated(view.row)),
                    None => Err(Problem::clone(problem).into_error()),
                },
            },
            None => Ok(Online::Done(changed(&answer)?)),
        }
    }

    /// As [`Roster::offline`](crate::roster::Roster::offline).
    ///
    /// # Errors
    /// `NotFound`, with nothing changed.
    pub async fn offline(&self, provider: &ProviderId) -> Result<Written<Provider>> {
        self.tell(provider, "offline").await
    }

    /// As [`Roster::activate`](crate::roster::Roster::activate).
    ///
    /// # Errors
    /// `NotFound`, with nothing changed.
    pub async fn activate(&self, provider: &ProviderId) -> Result<Written<Provider>> {
        self.tell(provider, "activate").await
    }

    /// As [`Roster::deactivate`](crate::roster::Roster::deactivate).
    ///
    /// # Errors
    /// `NotFound`, with nothing changed.
    pub async fn deactivate(&self, provider: &ProviderId) -> Result<Written<Provider>> {
        self.tell(provider, "deactivate").await
    }

    /// As [`Roster::heartbeat`](crate::roster::Roster::heartbeat).
    ///
    /// # Errors
    /// None of its own.
    pub async fn heartbeat(&self, provider: &ProviderId) -> Result<HeartbeatOutcome> {
        const EXPECTED: &[Code] = &[
            Code::ProviderOffline,
            Code::ProviderDeactivated,
            Code::TokenRevoked,
            Code::NotFound,
        ];
        let path = self.path(&["providers", provider.as_str(), "heartbeat"]);
        let answer = self
            .ask(self.store.harmless(Method::POST, &path).expects(EXPECTED))
            .await?;
        match &answer.problem {
            None => {
                let shown: wire::HeartbeatAnswer = answer.json()?;
                Ok(HeartbeatOutcome::Recorded(shown.recorded))
            }
            Some((Code::ProviderOffline, _)) => Ok(HeartbeatOutcome::Offline),
            Some((Code::ProviderDeactivated, _)) => Ok(HeartbeatOutcome::Deactivated),
            Some((Code::TokenRevoked, _)) => Ok(HeartbeatOutcome::Revoked),
            Some((Code::NotFound, _)) => Ok(HeartbeatOutcome::Unknown),
            Some((_, problem)) => Err(Problem::clone(problem).into_error()),
        }
    }

    async fn tell(&self, provider: &ProviderId, what: &str) -> Result<Written<Provider>> {
        let path = self.path(&["providers", provider.as_str(), what]);
        changed(&self.ask(self.store.commit(Method::POST, &path)).await?)
    }
}

fn changed(answer: &DaemonResponse) -> Result<Written<Provider>> {
    let written: Written<wire::Provider> = answer.json()?;
    Ok(written.map(|shown| shown.row))
}
