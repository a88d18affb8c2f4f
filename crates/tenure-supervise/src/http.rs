//! HTTP clients: of agents, event streams and probes. No proxy, no redirect, no pool: a connection that the other side
//! closes while something is being written would fail it.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use reqwest::{Client, ClientBuilder};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tenure_core::clock::{Clock, within};
use tenure_tls::{ClientTls, Followed, Look};

/// A client whose files of TLS are looked at before it is used: a certificate may be replaced under a supervisor, which
/// runs for as long as its program.
#[derive(Debug)]
pub(crate) struct Connector {
    socket: Option<PathBuf>,
    client: RwLock<Client>,
    /// Where there are files to follow.
    files: Option<Followed>,
    /// Held while the files are read.
    looking: Arc<tokio::sync::Mutex<()>>,
}

impl Connector {
    /// Reads the files; without any, for plain HTTP.
    ///
    /// # Errors
    /// A sentence, which names the file that cannot be used.
    pub(crate) fn new(tls: Option<&ClientTls>, socket: Option<PathBuf>) -> Result<Self, String> {
        let read = tls.map(|tls| Followed::new(tls.clone())).transpose();
        let (files, config) = read.map_err(|error| error.to_string())?.unzip();
        let client = connecting(config, socket.clone())?;
        Ok(Self {
            socket,
            client: RwLock::new(client),
            files,
            looking: Arc::default(),
        })
    }

    /// The client for a connection now. A disk that takes longer than `bound` leaves the one before in use.
    pub(crate) async fn client(self: &Arc<Self>, clock: &dyn Clock, bound: Duration) -> Client {
        if self.files.is_some()
            && let Ok(turn) = Arc::clone(&self.looking).try_lock_owned()
        {
            let this = Arc::clone(self);
            let looking = tokio::task::spawn_blocking(move || {
                this.look();
                drop(turn);
            });
            within(clock, bound, looking).await;
        }
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn look(&self) {
        let made = match self.files.as_ref().map(Followed::look) {
            None | Some(Look::Same) => return,
            Some(Look::Changed(config)) => connecting(Some(*config), self.socket.clone()),
            Some(Look::Unusable(error)) => Err(error.to_string()),
        };
        match made {
            Ok(client) => {
                *self.client.write().unwrap_or_else(PoisonError::into_inner) = client;
                tracing::info!("the TLS files have changed; new connections use them");
            }
            Err(error) => tracing::warn!(error, "the TLS files cannot be used; the previous ones stay in use"),
        }
    }
}

fn connecting(tls: Option<ClientConfig>, socket: Option<PathBuf>) -> Result<Client, String> {
    let mut builder = client(tls)?;
    if let Some(socket) = socket {
        builder = builder.unix_socket(socket);
    }
    builder.build().map_err(|error| error.to_string())
}

/// A client to be made. `None` believes nobody, which is enough for plain HTTP: the authorities of the machine are not
/// read for it.
///
/// # Errors
/// A sentence, when TLS cannot be set up.
pub(crate) fn client(tls: Option<ClientConfig>) -> Result<ClientBuilder, String> {
    let tls = match tls {
        Some(tls) => tls,
        None => believes_nobody()?,
    };
    Ok(Client::builder()
        .tls_backend_preconfigured(tls)
        .pool_max_idle_per_host(0)
        .tcp_nodelay(true)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION"))))
}

fn believes_nobody() -> Result<ClientConfig, String> {
    Ok(ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth())
}

/// A URL for logs: without its user, its password and its query, which may be secrets.
pub(crate) fn shown(url: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(url) else {
        return "a URL that cannot be read".to_owned();
    };
    // It refuses only where there can be none.
    let _ = (url.set_username(""), url.set_password(None));
    url.set_query(None);
    url.to_string()
}

/// An error with all that caused it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_a_url_has_no_secrets() {
        for (url, means) in [
            ("http://host:1/health", "http://host:1/health"),
            ("http://user:secret@host:1/health?key=secret", "http://host:1/health"),
            ("http://secret@host/", "http://host/"),
            ("http://user:secret@:0x/", "a URL that cannot be read"),
        ] {
            assert_eq!(shown(url), means);
        }
    }
}
