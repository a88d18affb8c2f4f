//! Opening a store by URL.
//!
//! | URL | store |
//! |---|---|
//! | `memory:` | in memory, lost when the process ends; for experiments |
//! | `sqlite:PATH` | one file, owned by one process |
//! | `valkey://HOST:PORT/DB`, `redis://…` | a Valkey or Redis server; with TLS `valkeys://…`, `rediss://…` |
//! | `valkey-sentinel://HOST:PORT,…/NAME`, `redis-sentinel://…` | the primary that the sentinels report |
//! | `valkey-cluster://HOST:PORT,…`, `redis-cluster://…` | a cluster |
//! | `http://HOST:PORT`, `https://HOST:PORT?tls_ca=FILE` | a daemon |
//!
//! A SQLite file is owned by one process. Opening a file that another process owns connects to that process over HTTP
//! if it has recorded an address; otherwise the error names the owner.

#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
pub use sqlite::{Restored, restore_sqlite};

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::{Clock, SystemClock};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::memory::MemoryStore;
use tenure_core::store::{Store, StoreOptions};

use crate::access::AccessToken;

/// The supported schemes, for messages.
const SCHEMES: &str = "memory:, sqlite:PATH, valkey://HOST:PORT, redis://HOST:PORT (valkeys:// with TLS, \
     valkey-sentinel://, valkey-cluster://) and http://HOST:PORT";

/// Options for opening a store.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Settings that all processes sharing the store must agree on. A daemon uses its own and ignores these.
    pub store: StoreOptions,
    /// Local time and randomness.
    pub clock: Arc<dyn Clock>,
    /// After this long the outcome of a request counts as unknown. `None` uses the default of the store.
    pub request_timeout: Option<Duration>,
    /// The HTTP address of this process (`host:port`). It is recorded beside a SQLite file that this process owns, so
    /// that other processes can find it.
    pub http_address: Option<String>,
    /// The bearer token for a daemon.
    pub token: Option<AccessToken>,
    /// Whether to connect to the owner of a SQLite file instead of failing. A daemon sets this to `false`: it owns its
    /// file or fails.
    pub follow_owner: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            store: StoreOptions::default(),
            clock: SystemClock::shared(),
            request_timeout: None,
            http_address: None,
            token: None,
            follow_owner: true,
        }
    }
}

/// Opens the store at a URL. Call it on the runtime that will use the store: its connections live there.
///
/// # Errors
/// `Misconfigured` for an unsupported URL or a file owned by another process; `Unavailable` when the store cannot be
/// reached.
pub async fn open_store(url: &str, options: &OpenOptions) -> Result<Arc<dyn Store>> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(misconfigured(format!(
            "the store URL has no scheme; there are {SCHEMES}"
        )));
    };
    match scheme {
        // A daemon may have served an earlier in-memory store, which is lost.
        "memory" if rest.is_empty() && options.http_address.is_some() => Ok(MemoryStore::after_loss(
            options.store.clone(),
            Arc::clone(&options.clock),
        )),
        "memory" if rest.is_empty() => Ok(MemoryStore::new(options.store.clone(), Arc::clone(&options.clock))),
        "memory" => Err(misconfigured("write memory: alone; it has no address".to_owned())),
        "sqlite" => open_sqlite(rest, options).await,
        "valkey" | "redis" | "valkeys" | "rediss" | "valkey-sentinel" | "redis-sentinel" | "valkey-cluster"
        | "redis-cluster" => open_valkey(url, options).await,
        "http" | "https" => open_http(url, options),
        // Show only the scheme: the rest may contain a password.
        _ => {
            let shown: String = scheme.chars().take(32).collect();
            Err(misconfigured(format!(
                "{shown:?} is not a scheme of a store; there are {SCHEMES}"
            )))
        }
    }
}

fn misconfigured(message: String) -> Error {
    Error::new(ErrorKind::Misconfigured, message)
}

#[cfg(not(all(feature = "http", feature = "sqlite", feature = "valkey")))]
fn left_out(what: &str, feature: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("this program was built without {what}; enable the feature `{feature}`"),
    )
}

#[cfg(feature = "http")]
fn open_http(url: &str, options: &OpenOptions) -> Result<Arc<dyn Store>> {
    use crate::http::{HttpSettings, HttpStore};
    let defaults = HttpSettings::default();
    let request_timeout = options.request_timeout.unwrap_or(defaults.request_timeout);
    let connect_timeout = defaults.connect_timeout.min(request_timeout);
    let settings = HttpSettings {
        request_timeout,
        connect_timeout,
        ..defaults
    };
    let runtime = tokio::runtime::Handle::current();
    let (clock, token) = (Arc::clone(&options.clock), options.token.clone());
    Ok(Arc::new(HttpStore::with_token(url, clock, runtime, settings, token)?))
}

#[cfg(not(feature = "http"))]
fn open_http(_: &str, _: &OpenOptions) -> Result<Arc<dyn Store>> {
    Err(left_out("the HTTP client", "http"))
}

#[cfg(feature = "valkey")]
async fn open_valkey(url: &str, options: &OpenOptions) -> Result<Arc<dyn Store>> {
    use tenure_valkey::{ConnectionOptions, ValkeyStore};
    let mut connection = ConnectionOptions::default();
    connection.request_timeout = options.request_timeout.unwrap_or(connection.request_timeout);
    Ok(ValkeyStore::open(url, options.store.clone(), connection, Arc::clone(&options.clock)).await?)
}

#[cfg(not(feature = "valkey"))]
async fn open_valkey(_: &str, _: &OpenOptions) -> Result<Arc<dyn Store>> {
    Err(left_out("the Valkey store", "valkey"))
}

#[cfg(feature = "sqlite")]
async fn open_sqlite(path: &str, options: &OpenOptions) -> Result<Arc<dyn Store>> {
    sqlite::open(path, options).await
}

#[cfg(not(feature = "sqlite"))]
async fn open_sqlite(_: &str, _: &OpenOptions) -> Result<Arc<dyn Store>> {
    Err(left_out("the SQLite store", "sqlite"))
}

#[cfg(test)]
mod tests;
