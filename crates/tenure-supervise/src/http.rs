//! HTTP clients: of agents, event streams and probes. No proxy, no redirect, no pool: a connection that the other side
//! closes while something is being written would fail it.

use std::sync::Arc;

use reqwest::{Client, ClientBuilder};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

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
