//! A daemon as one more store: every operation is a request of its HTTP surface.
//!
//! Requests run on a runtime that is given at construction, so that a blocked user runtime cannot starve beats (the
//! connections live there, too). Each has an outer deadline, and a mutating one tells the daemon until when it may take
//! effect (`Tenure-Not-After`): what its caller has given up on does not happen later. A request whose connection broke
//! is sent again, once and at once, only when that is harmless: reads and beats.
//!
//! It does not sweep (the daemon does), queues nothing, and replays nothing that could act twice.

mod base;
mod connector;
mod event;
mod lease;
mod membership;
mod registry;
mod request;
mod roster;
mod session;
mod store;
mod sweep;
mod target;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Url;
use reqwest::header::HeaderValue;
use serde::de::DeserializeOwned;
use tenure_core::clock::Clock;
use tenure_core::error::{Error, Result};
use tenure_core::remote_clock::RemoteClock;
use tenure_core::store::{Health, PageRequest, bad_cursor};
use tokio::runtime::Handle;

use self::base::Base;
use self::connector::Connector;
pub use self::roster::{RemoteRoster, RemoteRosters};
use crate::access::AccessToken;
use crate::wire::ServerStatus;

/// How a client talks to its daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpSettings {
    /// After this long the outcome of a request counts as unknown. Must leave room for the daemon's own timeout towards
    /// its store.
    pub request_timeout: Duration,
    /// How long setting up a connection may take; part of the above.
    pub connect_timeout: Duration,
    /// How long a whole sweep may take.
    pub sweep_timeout: Duration,
    /// How long an idle connection is kept; shorter than the daemon keeps it (30 s), so that a request rarely meets a
    /// connection that is being closed.
    pub idle_timeout: Duration,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_millis(500),
            sweep_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(20),
        }
    }
}

/// A store behind a daemon.
pub struct HttpStore {
    inner: Arc<Inner>,
}

/// What requests in flight share with the store.
struct Inner {
    base: Url,
    connector: Arc<Connector>,
    runtime: Handle,
    clock: Arc<dyn Clock>,
    settings: HttpSettings,
    /// What the daemon is shown, unless a request shows something of its own.
    token: Option<Mutex<Shown>>,
    /// The store's clock, as the daemon's answers show it.
    store_clock: RemoteClock,
    down: Mutex<Option<String>>,
    timeouts_in_a_row: AtomicU32,
    closed: AtomicBool,
}

impl fmt::Debug for HttpStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpStore")
            .field("base", &self.inner.base.as_str())
            .finish_non_exhaustive()
    }
}

impl HttpStore {
    /// A client of the daemon at `url` (`http://host:port`, with a path when the daemon is served below one), which has to
    /// show nothing. Connects with the first request; its requests run on `runtime`.
    ///
    /// `https://` checks the daemon's certificate by the authorities of the machine, or by those in the file that the query
    /// parameter `tls_ca` names; `tls_cert` and `tls_key` name what is shown to a daemon that asks for a certificate. The
    /// files are read here, and again when they have changed; what cannot be used then leaves what was read before in use.
    ///
    /// # Errors
    /// `Misconfigured` for a URL that is neither, has credentials, another query or a fragment, and for files that cannot
    /// be used.
    pub fn new(url: &str, clock: Arc<dyn Clock>, runtime: Handle, settings: HttpSettings) -> Result<Self> {
        Self::with_token(url, clock, runtime, settings, None)
    }

    /// The same for a daemon that asks who is calling.
    ///
    /// # Errors
    /// Those of [`HttpStore::new`].
    pub fn with_token(
        url: &str,
        clock: Arc<dyn Clock>,
        runtime: Handle,
        settings: HttpSettings,
        token: Option<AccessToken>,
    ) -> Result<Self> {
        let base = Base::read(url)?;
        let connector = Arc::new(base.connector(settings)?);
        let inner = Inner {
            base: base.url,
            connector,
            runtime,
            clock,
            settings,
            token: token.map(Shown::new).transpose()?.map(Mutex::new),
            store_clock: RemoteClock::default(),
            down: Mutex::new(None),
            timeouts_in_a_row: AtomicU32::new(0),
            closed: AtomicBool::new(false),
        };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl HttpStore {
    /// How the daemon is. It answers also while its store is away.
    ///
    /// # Errors
    /// `Unavailable`, and `Denied` for a token that may not read.
    pub async fn status(&self) -> Result<ServerStatus> {
        self.ask("/v1/status").await
    }

    /// Reads something that no other method is for, by its path (`/v1/status`).
    ///
    /// # Errors
    /// What the daemon answers, and `Unavailable`.
    pub async fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let path: Vec<_> = path.trim_start_matches('/').split('/').collect();
        // The daemon waits for a store that is away, as for any other request.
        self.send(self.read(&path).patience(STATUS_PATIENCE)).await?.json()
    }
}

/// How long a daemon may take to say how it is.
const STATUS_PATIENCE: Duration = Duration::from_secs(3);

/// A token, and the header that it makes.
struct Shown {
    token: AccessToken,
    header: HeaderValue,
}

impl Shown {
    fn new(token: AccessToken) -> Result<Self> {
        let header = bearer(token.text())?;
        Ok(Self { token, header })
    }
}

/// The header that shows a token, which no log prints.
fn bearer(token: &str) -> Result<HeaderValue> {
    let header = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut header =
        header.map_err(|_| Error::invalid("the token has characters that no token has; is it the right text?"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Refuses a cursor that a URL cannot carry as itself: an empty `after=` means the beginning. Answers the limit.
fn check_page(page: &PageRequest) -> Result<u32> {
    match page.after.as_deref() {
        Some("") => Err(bad_cursor("")),
        _ => Ok(page.limit),
    }
}

impl Inner {
    /// The daemon answered, with whatever.
    fn heard(&self) {
        self.timeouts_in_a_row.store(0, Ordering::Relaxed);
    }

    /// A single timeout may be bad luck; two in a row are an outage.
    fn timed_out(&self) {
        if self.timeouts_in_a_row.fetch_add(1, Ordering::Relaxed) >= 1 {
            self.set_down(Some(format!("no answer within {:?}", self.settings.request_timeout)));
        }
    }

    fn set_down(&self, reason: Option<String>) {
        let mut down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*down, &reason) {
            (None, Some(reason)) => tracing::warn!(daemon = %self.base, %reason, "the daemon cannot be reached"),
            (Some(_), None) => tracing::info!(daemon = %self.base, "the daemon answers again"),
            _ => {}
        }
        *down = reason;
    }

    fn health(&self) -> Health {
        if self.closed.load(Ordering::Relaxed) {
            return Health::Down {
                reason: "closed".to_owned(),
            };
        }
        match &*self.down.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(reason) => Health::Down { reason: reason.clone() },
            None => Health::Up,
        }
    }
}

#[cfg(test)]
mod tests;
