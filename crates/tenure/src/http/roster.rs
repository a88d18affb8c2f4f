//! Rosters over HTTP, served by a daemon with a ledger.
//!
//! [`RemoteRoster`] has the methods and results of [`Roster`](crate::roster::Roster). A daemon that requires a token
//! identifies the caller by it ([`RemoteRoster::with_token`]), so these methods take no issue time.

mod engagement;
mod provider;
mod reading;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use reqwest::header::HeaderValue;
use serde::de::DeserializeOwned;
use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{EngagementId, RosterName};
use tenure_core::ledger::{RosterSettings, SettingsPatch};
use tokio::runtime::Handle;

use super::request::{DaemonResponse, Request};
use super::{HttpSettings, HttpStore, bearer};
use crate::roster::{Sourced, Written};
use crate::wire::roster as wire;

/// Time-out of a roster request. A daemon whose hot store hangs reads from its ledger and answers within two seconds.
const PATIENCE: Duration = Duration::from_millis(2_500);

/// The rosters of a daemon. Clones share state.
#[derive(Clone)]
pub struct RemoteRosters {
    store: Arc<HttpStore>,
}

impl fmt::Debug for RemoteRosters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteRosters({:?})", self.store)
    }
}

impl RemoteRosters {
    /// The rosters of the daemon at `url`. Does no I/O. Requests run on `runtime`. The request time-out of the settings
    /// does not apply, because an answer may need two stores in turn.
    ///
    /// # Errors
    /// Those of [`HttpStore::new`].
    pub fn new(url: &str, clock: Arc<dyn Clock>, runtime: Handle, settings: HttpSettings) -> Result<Self> {
        Ok(Self::of(HttpStore::new(url, clock, runtime, settings)?))
    }

    /// The rosters of a daemon that is already connected, with its token.
    #[must_use]
    pub fn of(store: HttpStore) -> Self {
        let store = Arc::new(store);
        Self { store }
    }

    /// A roster, whether or not it exists. No I/O.
    #[must_use]
    pub fn roster(&self, name: &RosterName) -> RemoteRoster {
        RemoteRoster {
            store: Arc::clone(&self.store),
            name: name.clone(),
            token: None,
        }
    }

    /// The hot store of the daemon and that of its ledger.
    ///
    /// # Errors
    /// `Unavailable`; `Unsupported` for a daemon without a ledger; `Denied`.
    pub async fn hot_store(&self) -> Result<wire::HotStoreState> {
        let request = self.store.read(&["v1", "hot-store"]).patience(PATIENCE);
        self.store.send(request).await?.json()
    }

    /// Makes the hot store of the daemon that of its ledger.
    ///
    /// # Errors
    /// As [`RemoteRosters::hot_store`].
    pub async fn replace_hot_store(&self) -> Result<wire::HotStoreState> {
        let request = self.store.commit(Method::PUT, &["v1", "hot-store"]).patience(PATIENCE);
        self.store.send(request).await?.json()
    }

    /// The names of the rosters in the daemon's ledger.
    ///
    /// # Errors
    /// `Unavailable`; `Unsupported` for a daemon without a ledger.
    pub async fn names(&self) -> Result<Vec<RosterName>> {
        let (mut all, mut after) = (Vec::new(), None::<String>);
        loop {
            let mut query = vec![("limit", "1000")];
            query.extend(after.as_deref().map(|after| ("after", after)));
            let request = self.store.read(&["v1", "rosters"]).query(&query).patience(PATIENCE);
            let page: wire::RostersPage = self.store.send(request).await?.json()?;
            all.extend(page.rosters);
            match page.next {
                Some(next) if after.as_ref() != Some(&next) => after = Some(next),
                _ => return Ok(all),
            }
        }
    }
}

/// A roster of a daemon. Clones share state.
///
/// Every method may fail with `Unavailable` when the daemon or one of its stores is unreachable (a write without an answer was
/// repeated once; the outcome tells whether something may have changed; a retry is safe), with `Unsupported` for a daemon without a
/// ledger, and methods of providers and operators with `Denied` for an insufficient token. These errors are not
/// repeated below.
#[derive(Clone)]
pub struct RemoteRoster {
    store: Arc<HttpStore>,
    name: RosterName,
    token: Option<HeaderValue>,
}

impl fmt::Debug for RemoteRoster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteRoster({})", self.name)
    }
}

impl RemoteRoster {
    /// The name of the roster.
    #[must_use]
    pub fn name(&self) -> &RosterName {
        &self.name
    }

    /// The same roster with the token of a provider.
    ///
    /// # Errors
    /// `Invalid` for a text that a header cannot carry. The error does not contain it.
    pub fn with_token(&self, token: &str) -> Result<Self> {
        let token = Some(bearer(token)?);
        Ok(Self { token, ..self.clone() })
    }

    /// A new unique engagement id.
    ///
    /// # Errors
    /// None in practice.
    pub fn name_engagement(&self) -> Result<EngagementId> {
        let chance = || self.store.inner.clock.entropy();
        EngagementId::new(format!("e-{:016x}{:016x}", chance(), chance()))
    }

    /// The settings in force at the daemon, at most a second old.
    ///
    /// # Errors
    /// None of its own.
    pub async fn settings(&self) -> Result<Sourced<RosterSettings>> {
        let settings = self.ask(self.store.read(&self.path(&[]))).await?.json()?;
        Ok(Sourced::ledger(settings))
    }

    /// Changes the settings. All daemons apply them within a second.
    ///
    /// # Errors
    /// `Invalid` for a value outside its limits, with nothing changed.
    pub async fn set_settings(&self, patch: &SettingsPatch) -> Result<Written<RosterSettings>> {
        let request = self.store.commit(Method::PATCH, &self.path(&[])).json(patch);
        self.ask(request).await?.json()
    }

    /// The path of a resource in the roster.
    fn path<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        let mut path = vec!["v1", "rosters", self.name.as_str()];
        path.extend(rest);
        path
    }

    async fn ask(&self, request: Request) -> Result<DaemonResponse> {
        let request = request.patience(PATIENCE).token(self.token.clone());
        self.store.send(request).await
    }
}

/// A required part of a problem body.
fn required<T: Clone>(shown: Option<&T>) -> Result<T> {
    shown
        .cloned()
        .ok_or_else(|| Error::new(ErrorKind::Internal, "the daemon's problem lacks the current value"))
}

/// Parses a response; `None` for "not found".
fn if_found<T: DeserializeOwned>(answer: Result<DaemonResponse>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => answer.json().map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
