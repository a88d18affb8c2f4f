//! A daemon as a store: each operation is an HTTP request.
//!
//! Requests run on a runtime given at construction, so that a blocked user runtime cannot starve beats (connections
//! live there, too). Each request has a deadline. A mutating one sends its not-after (`Tenure-Not-After`), so it cannot
//! take effect after its caller has timed out. After a broken connection a request is sent again, once and immediately, on
//! a new connection, and if that fails, too, the outcome of a change is unknown. What must not be repeated has a
//! connection of its own. A refusal that changed nothing and passes within the time-out is waited for.
//!
//! This store does not sweep (the daemon does), has no queue, and replays nothing that could act twice.

mod base;
mod connector;
mod event;
mod lease;
mod membership;
mod registry;
mod repeat;
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

/// Settings of the connection to a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpSettings {
    /// Request time-out, after which the outcome counts as unknown. It must exceed the daemon's own time-out for its
    /// store.
    pub request_timeout: Duration,
    /// Time-out for connecting; part of the request time-out.
    pub connect_timeout: Duration,
    /// Time-out of a full sweep.
    pub sweep_timeout: Duration,
    /// How long an idle connection is kept; shorter than at the daemon (30 s), so that a request rarely meets a closing
    /// connection.
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

/// State shared by the store and its requests.
struct Inner {
    base: Url,
    connector: Arc<Connector>,
    runtime: Handle,
    clock: Arc<dyn Clock>,
    settings: HttpSettings,
    /// The token of the client; a request may use its own.
    token: Option<Mutex<TokenHeader>>,
    /// Estimate of the store's clock, from the daemon's answers.
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
    /// A client of the daemon at `url` (`http://host:port`, with an optional path prefix) without a token. Connects at
    /// the first request; requests run on `runtime`.
    ///
    /// `https://` verifies the daemon's certificate with the system's authorities, or with those in the file of the
    /// query parameter `tls_ca`. `tls_cert` and `tls_key` name the client certificate. The files are read here and
    /// re-read when they change; if a new file is invalid, the previous ones stay in use.
    ///
    /// # Errors
    /// `Misconfigured` for another scheme, credentials, an unknown query parameter or a fragment, and for invalid
    /// files.
    pub fn new(url: &str, clock: Arc<dyn Clock>, runtime: Handle, settings: HttpSettings) -> Result<Self> {
        Self::with_token(url, clock, runtime, settings, None)
    }

    /// A client with a bearer token.
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
            token: token.map(TokenHeader::new).transpose()?.map(Mutex::new),
            store_clock: RemoteClock::default(),
            down: Mutex::new(None),
            timeouts_in_a_row: AtomicU32::new(0),
            closed: AtomicBool::new(false),
        };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl HttpStore {
    /// The status of the daemon, available even while its store is down.
    ///
    /// # Errors
    /// `Unavailable`, and `Denied` for a token without read access.
    pub async fn status(&self) -> Result<ServerStatus> {
        self.ask("/v1/status").await
    }

    /// Reads a resource by path (`/v1/status`), for which there is no method here.
    ///
    /// # Errors
    /// The daemon's error, and `Unavailable`.
    pub async fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let path: Vec<_> = path.trim_start_matches('/').split('/').collect();
        // The daemon waits for an unavailable store first, as for any request.
        self.send(self.read(&path).patience(STATUS_PATIENCE)).await?.json()
    }
}

/// Time-out of a status request.
const STATUS_PATIENCE: Duration = Duration::from_secs(3);

/// A token and its header value.
struct TokenHeader {
    token: AccessToken,
    header: HeaderValue,
}

impl TokenHeader {
    fn new(token: AccessToken) -> Result<Self> {
        let header = bearer(token.text())?;
        Ok(Self { token, header })
    }
}

/// The header value of a token, marked as sensitive.
fn bearer(token: &str) -> Result<HeaderValue> {
    let header = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut header =
        header.map_err(|_| Error::invalid("not a valid token: it contains a character that a header cannot carry"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Rejects a cursor that a URL cannot carry: an empty `after=` means the start. Returns the limit.
fn check_page(page: &PageRequest) -> Result<u32> {
    match page.after.as_deref() {
        Some("") => Err(bad_cursor("")),
        _ => Ok(page.limit),
    }
}

impl Inner {
    /// Records that the daemon answered.
    fn answered(&self) {
        self.timeouts_in_a_row.store(0, Ordering::Relaxed);
    }

    /// Records a time-out. Two in a row count as an outage.
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
