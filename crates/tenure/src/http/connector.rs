//! What connects to the daemon: one HTTP client for as long as the files of its TLS are what they were.
//!
//! A member outlives its certificate. The files are looked at beside the requests, and again when a connection fails, so
//! that the new certificate is used at the latest when the daemon does not believe the old one any more.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use reqwest::Client;
use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_tls::{ClientConfig, Followed, Look};

use super::HttpSettings;

/// The least time between two looks at the files beside the requests.
const LOOK: Duration = Duration::from_secs(1);

/// The HTTP client of the moment.
pub(super) struct Connector {
    settings: HttpSettings,
    current: RwLock<Current>,
    /// Where there are files to follow.
    files: Option<Followed>,
    looked_at: Mutex<Mono>,
    /// Held while the files are read, which a disk may take long for.
    looking: Arc<tokio::sync::Mutex<()>>,
}

/// A client, and how many were before it.
#[derive(Clone)]
pub(super) struct Current {
    pub(super) client: Client,
    pub(super) number: u64,
}

impl Connector {
    /// A client with this TLS, and the files that it is from. Without files it speaks plain HTTP.
    ///
    /// # Errors
    /// `Misconfigured`, when the client cannot be set up.
    pub(super) fn new(settings: HttpSettings, tls: ClientConfig, files: Option<Followed>) -> Result<Self> {
        let client = client(&settings, tls, files.is_some())?;
        Ok(Self {
            settings,
            current: RwLock::new(Current { client, number: 0 }),
            files,
            looked_at: Mutex::default(),
            looking: Arc::default(),
        })
    }

    /// What a request is sent with.
    pub(super) fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks at the files now and then. Nothing waits for it.
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

    /// Looks at the files, after a request with this client has failed. Whether there is another client by now.
    pub(super) async fn is_renewed(self: &Arc<Self>, used: u64) -> bool {
        if self.files.is_none() {
            return false;
        }
        let turn = Arc::clone(&self.looking).lock_owned().await;
        let this = Arc::clone(self);
        // The turn ends with the reading, also when the request is given up before.
        let looked = tokio::task::spawn_blocking(move || {
            this.look();
            drop(turn);
        });
        looked.await.is_ok() && self.current().number != used
    }

    /// Blocks.
    fn look(&self) {
        let Some(files) = &self.files else { return };
        let made = match files.look() {
            Look::Same => return,
            Look::Changed(config) => client(&self.settings, *config, true),
            Look::Unusable(error) => Err(Error::new(ErrorKind::Misconfigured, error.to_string())),
        };
        match made {
            Ok(client) => {
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                let number = current.number + 1;
                *current = Current { client, number };
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
