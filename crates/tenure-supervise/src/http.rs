//! HTTP clients for agents, event streams and probes. They use no proxy, follow no redirect and pool no connection: a
//! pooled connection that the peer closes during a write fails the request.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use reqwest::{Client, ClientBuilder};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tenure_core::clock::{Clock, within};
use tenure_tls::{ClientTls, Reload, ReloadingTls};

/// A client that reloads its TLS files when they change: certificates are rotated while a supervisor runs.
#[derive(Debug)]
pub(crate) struct Connector {
    socket: Option<PathBuf>,
    client: RwLock<Client>,
    /// The TLS files to watch, if any.
    files: Option<ReloadingTls>,
    /// Held while the files are read.
    looking: Arc<tokio::sync::Mutex<()>>,
}

impl Connector {
    /// Reads the files. `None` means plain HTTP.
    ///
    /// # Errors
    /// A message that names the unusable file.
    pub(crate) fn new(tls: Option<&ClientTls>, socket: Option<PathBuf>) -> Result<Self, String> {
        let read = tls.map(|tls| ReloadingTls::new(tls.clone())).transpose();
        let (files, config) = read.map_err(|error| error.to_string())?.unzip();
        let client = build(config, socket.clone())?;
        Ok(Self {
            socket,
            client: RwLock::new(client),
            files,
            looking: Arc::default(),
        })
    }

    /// The client for a new connection. If the disk takes longer than `bound`, the previous one stays in use.
    pub(crate) async fn client(self: &Arc<Self>, clock: &dyn Clock, bound: Duration) -> Client {
        if self.files.is_some()
            && let Ok(turn) = Arc::clone(&self.looking).try_lock_owned()
        {
            let this = Arc::clone(self);
            let looking = tokio::task::spawn_blocking(move || {
                this.reload();
                drop(turn);
            });
            within(clock, bound, looking).await;
        }
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn reload(&self) {
        let made = match self.files.as_ref().map(ReloadingTls::reload) {
            None | Some(Reload::Unchanged) => return,
            Some(Reload::Changed(config)) => build(Some(*config), self.socket.clone()),
            Some(Reload::Unusable(error)) => Err(error.to_string()),
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

fn build(tls: Option<ClientConfig>, socket: Option<PathBuf>) -> Result<Client, String> {
    let mut builder = client(tls)?;
    if let Some(socket) = socket {
        builder = builder.unix_socket(socket);
    }
    builder.build().map_err(|error| error.to_string())
}

/// Builds a client. `None` trusts no root, which suffices for plain HTTP and skips loading the system's roots.
///
/// # Errors
/// A message, when TLS cannot be set up.
pub(crate) fn client(tls: Option<ClientConfig>) -> Result<ClientBuilder, String> {
    let tls = match tls {
        Some(tls) => tls,
        None => no_trusted_roots()?,
    };
    Ok(Client::builder()
        .tls_backend_preconfigured(tls)
        .pool_max_idle_per_host(0)
        .tcp_nodelay(true)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION"))))
}

fn no_trusted_roots() -> Result<ClientConfig, String> {
    Ok(ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth())
}

/// A URL for logs, without user, password and query, which may contain secrets.
pub(crate) fn shown(url: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(url) else {
        return "a URL that cannot be read".to_owned();
    };
    // Fails only for URLs that cannot have a user.
    let _ = (url.set_username(""), url.set_password(None));
    url.set_query(None);
    url.to_string()
}

/// An error with all its causes.
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
    fn logged_url_hides_user_password_and_query() {
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
