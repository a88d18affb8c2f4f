//! Rosters over HTTP: those of a daemon, which has the ledger.
//!
//! [`RemoteRoster`] has the methods of [`Roster`](crate::roster::Roster), and answers in its words. Who acts is told by the
//! token, if the daemon asks for one ([`RemoteRoster::with_token`]), so nothing here says when one was issued.

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

use super::request::{Answer, Request};
use super::{HttpSettings, HttpStore, bearer};
use crate::roster::{Sourced, Written};
use crate::wire::roster as wire;

/// How long an answer about a roster may take: a daemon whose hot store hangs turns to its ledger, and answers within two
/// seconds in any case.
const PATIENCE: Duration = Duration::from_millis(2_500);

/// The rosters of a daemon. Cheap to clone.
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
    /// Those of the daemon at `url`. Does no I/O. Requests run on `runtime`; of the settings, the request timeout does not
    /// count here, because an answer may need two stores in turn.
    ///
    /// # Errors
    /// Those of [`HttpStore::new`].
    pub fn new(url: &str, clock: Arc<dyn Clock>, runtime: Handle, settings: HttpSettings) -> Result<Self> {
        Ok(Self::of(HttpStore::new(url, clock, runtime, settings)?))
    }

    /// Those of a daemon that is connected to already, with what it is shown.
    #[must_use]
    pub fn of(store: HttpStore) -> Self {
        let store = Arc::new(store);
        Self { store }
    }

    /// One of them, whether or not anybody ever used it. No I/O.
    #[must_use]
    pub fn roster(&self, name: &RosterName) -> RemoteRoster {
        RemoteRoster {
            store: Arc::clone(&self.store),
            name: name.clone(),
            token: None,
        }
    }

    /// The rosters that the daemon's ledger knows, by name.
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

/// One roster of a daemon. Cheap to clone.
///
/// Every method fails with `Unavailable` when the daemon, or what it needs, is out of reach (after a write the outcome tells
/// whether something may have changed; asking again is safe), with `Unsupported` for a daemon without a ledger, and those of
/// providers and operators with `Denied` for a token that does not do. These are not said again below.
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
    /// Which.
    #[must_use]
    pub fn name(&self) -> &RosterName {
        &self.name
    }

    /// The same roster for a provider who shows this token.
    ///
    /// # Errors
    /// `Invalid` for what is no text of a header. It is not repeated.
    pub fn with_token(&self, token: &str) -> Result<Self> {
        let token = Some(bearer(token)?);
        Ok(Self { token, ..self.clone() })
    }

    /// A name for an engagement that has none, unlike any other.
    ///
    /// # Errors
    /// `Internal`, never seen.
    pub fn name_engagement(&self) -> Result<EngagementId> {
        let chance = || self.store.inner.clock.entropy();
        EngagementId::new(format!("e-{:016x}{:016x}", chance(), chance()))
    }

    /// The settings that the daemon obeys; at most a second old.
    ///
    /// # Errors
    /// None of its own.
    pub async fn settings(&self) -> Result<Sourced<RosterSettings>> {
        let settings = self.ask(self.store.read(&self.path(&[]))).await?.json()?;
        Ok(Sourced::ledger(settings))
    }

    /// Changes the settings, for every instance within a second.
    ///
    /// # Errors
    /// `Invalid` for what breaks a limit: nothing changed.
    pub async fn set_settings(&self, patch: &SettingsPatch) -> Result<Written<RosterSettings>> {
        let request = self.store.commit(Method::PATCH, &self.path(&[])).json(patch);
        self.ask(request).await?.json()
    }

    /// The path of something in the roster.
    fn path<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        let mut path = vec!["v1", "rosters", self.name.as_str()];
        path.extend(rest);
        path
    }

    async fn ask(&self, request: Request) -> Result<Answer> {
        let request = request.patience(PATIENCE).token(self.token.clone());
        self.store.send(request).await
    }
}

/// A body of a problem that has to be there.
fn told<T: Clone>(shown: Option<&T>) -> Result<T> {
    shown
        .cloned()
        .ok_or_else(|| Error::new(ErrorKind::Internal, "the daemon refused without saying what is there"))
}

/// Reads an answer, or `None` when there is no such thing.
fn if_found<T: DeserializeOwned>(answer: Result<Answer>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => answer.json().map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
