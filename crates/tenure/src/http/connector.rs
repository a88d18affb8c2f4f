//! The HTTP client of a daemon, rebuilt when its TLS files change or a connection fails.
//!
//! A member may outlive its certificate. The files are checked periodically beside requests, and again when a
//! connection fails, so that a new certificate is used at the latest when the daemon rejects the old one.
//!
//! A restart of the daemon or of a balancer closes all connections at once. Each idle one would cost a request its
//! answer, so the first failure drops them all: the new client has none.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use reqwest::Client;
use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_tls::{ClientConfig, Reload, ReloadingTls};

use super::HttpSettings;

/// Shortest time between two periodic checks of the files.
const LOOK: Duration = Duration::from_secs(1);

/// Holds the current HTTP client.
pub(super) struct Connector {
    settings: HttpSettings,
    current: RwLock<CurrentClient>,
    /// The TLS files, if any.
    files: Option<ReloadingTls>,
    looked_at: Mutex<Mono>,
    /// Held while the files are read, which may be slow.
    looking: Arc<tokio::sync::Mutex<()>>,
}

/// A client and its generation.
#[derive(Clone)]
pub(super) struct CurrentClient {
    pub(super) client: Client,
    pub(super) number: u64,
    tls: ClientConfig,
}

impl Connector {
    /// Creates a client with this TLS configuration, read from `files`. Without files it uses plain HTTP.
    ///
    /// # Errors
    /// `Misconfigured` when the client cannot be set up.
    pub(super) fn new(settings: HttpSettings, tls: ClientConfig, files: Option<ReloadingTls>) -> Result<Self> {
        let client = client(&settings, tls.clone(), files.is_some())?;
        let number = 0;
        Ok(Self {
            settings,
            current: RwLock::new(CurrentClient { client, number, tls }),
            files,
            looked_at: Mutex::default(),
            looking: Arc::default(),
        })
    }

    /// The current client.
    pub(super) fn current(&self) -> CurrentClient {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A client without idle connections.
    ///
    /// # Errors
    /// `Misconfigured` when it cannot be set up.
    pub(super) fn unused(&self) -> Result<Client> {
        client(&self.settings, self.current().tls, self.files.is_some())
    }

    /// Drops the idle connections after a request with client `used` failed, unless they were dropped since.
    pub(super) fn drop_idle(&self, used: u64) {
        let Ok(client) = self.unused() else { return };
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.number == used {
            current.client = client;
            current.number += 1;
        }
    }

    /// Checks the files periodically, in the background.
    pub(super) fn follow(self: &Arc<Self>, now: Mono) {
        if self.files.is_none() {
            return;
        }
        {
            let mut last = self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
            if now.since(*last) < LOOK {
                return;
            }
            *last = now;
        }
        if let Ok(turn) = Arc::clone(&self.looking).try_lock_owned() {
            let this = Arc::clone(self);
            tokio::task::spawn_blocking(move || {
                this.look();
                drop(turn);
            });
        }
    }

    /// Checks the files after a request with client `used` failed. Returns whether there is a newer client.
    pub(super) async fn is_renewed(self: &Arc<Self>, used: u64) -> bool {
        if self.files.is_none() {
            return false;
        }
        let turn = Arc::clone(&self.looking).lock_owned().await;
        let this = Arc::clone(self);
        // The lock is released when the read ends, even if the request is dropped earlier.
        let looked = tokio::task::spawn_blocking(move || {
            this.look();
            drop(turn);
        });
        looked.await.is_ok() && self.current().number != used
    }

    /// Checks the files. Blocks.
    fn look(&self) {
        let Some(files) = &self.files else { return };
        let made = match files.reload() {
            Reload::Unchanged => return,
            Reload::Changed(config) => {
                client(&self.settings, ClientConfig::clone(&config), true).map(|client| (client, *config))
            }
            Reload::Unusable(error) => Err(Error::new(ErrorKind::Misconfigured, error.to_string())),
        };
        match made {
            Ok((client, tls)) => {
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                let number = current.number + 1;
                *current = CurrentClient { client, number, tls };
                tracing::info!("the TLS files have changed; new connections use them");
            }
            Err(error) => tracing::warn!(
                error = error.chain(),
                "the TLS files cannot be used; the previous ones stay in use"
            ),
        }
    }
}

fn client(settings: &HttpSettings, tls: ClientConfig, secure: bool) -> Result<Client> {
    Client::builder()
        .tls_backend_preconfigured(tls)
        .https_only(secure)
        .connect_timeout(settings.connect_timeout)
        .pool_idle_timeout(settings.idle_timeout)
        .tcp_nodelay(true)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| Error::new(ErrorKind::Misconfigured, "the HTTP client cannot be set up").because(error))
}
